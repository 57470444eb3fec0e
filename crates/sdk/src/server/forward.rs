//! Forwarded definitions: tools, resources, resource templates and prompts of other servers, registered as they are.
//! Their requests go to one receiver, which does all checks. For gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use linchpin_protocol::model::{
    self, CallToolResult, CompleteParams, CompleteResult, GetPromptResult, Meta, ReadResourceResult,
};
use linchpin_protocol::wire::InvalidValue;
use serde_json::json;
use serde_json::value::RawValue;

use super::catalog::{Catalog, CatalogItem};
use super::definitions::completion::{Completers, RemoteCompleter};
use super::definitions::prompt::{PromptEntry, PromptFuture, PromptHandler};
use super::definitions::resource::{
    ResourceEntry, ResourceFuture, ResourceHandler, TemplateEntry, TemplateHandler, Values,
};
use super::definitions::tool::{ToolEntry, ToolFuture, ToolHandler};
use super::request::scope::RequestScope;
use super::{BoxFuture, Context};
use crate::Result;

/// Receiver of the requests for forwarded definitions, set with [`crate::Server::forward`].
///
/// Requests for tools, prompts and resources that are not registered are forwarded, too, so that the receiver can log
/// them before it rejects them. Arguments and results are not checked.
pub trait Forward: Send + Sync + 'static {
    /// Calls a tool.
    fn call_tool(
        &self,
        name: &str,
        arguments: Box<RawValue>,
        cx: Context,
    ) -> BoxFuture<Result<CallToolResult>>;

    /// Reads a resource.
    fn read_resource(&self, uri: &str, cx: Context) -> BoxFuture<Result<ReadResourceResult>>;

    /// Renders a prompt.
    fn get_prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<Result<GetPromptResult>>;

    /// Completes an argument of a prompt or a variable of a resource template.
    fn complete(&self, params: CompleteParams, cx: Context) -> BoxFuture<Result<CompleteResult>>;

    /// Makes the subscriptions of a client to resources. The client's request is acknowledged when the future completes, so
    /// that the client misses no later update. [`Self::subscriptions_changed`] reports the same URIs later.
    fn subscribe(&self, uris: Vec<String>) -> BoxFuture<()>;

    /// Receives the URIs of all resources that clients are subscribed to, whenever they change.
    /// [`crate::ServerHandle::resource_updated`] notifies the subscribers.
    fn subscriptions_changed(&self, uris: BTreeSet<String>);
}

/// Definitions that a gateway offers, set with [`crate::ServerHandle::set_forwarded`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForwardedDefinitions {
    /// Tools.
    pub tools: Vec<model::Tool>,
    /// Resources.
    pub resources: Vec<model::Resource>,
    /// Resource templates.
    pub resource_templates: Vec<model::ResourceTemplate>,
    /// Prompts.
    pub prompts: Vec<model::Prompt>,
    /// Instructions for the model, instead of those of the server.
    pub instructions: Option<String>,
    /// Supported extensions by identifier, in addition to those of the server.
    pub extensions: Option<Meta>,
    /// Time after which a call that may run as a task becomes one, for clients that leave the decision to the server.
    pub task_delay: Duration,
}

impl ForwardedDefinitions {
    /// Creates the catalog of these definitions. Skips, with a log message, what cannot be registered, such as a second
    /// definition of the same name.
    pub(super) fn into_catalog(self, to: &Arc<dyn Forward>) -> Catalog {
        let mut catalog =
            Catalog { instructions: self.instructions, extensions: self.extensions, ..Catalog::default() };
        let tools = self.tools.into_iter().map(|tool| {
            let entry = forwarded_tool(tool, to);
            Ok(CatalogItem::Tool(Arc::new(entry.with_task_delay(self.task_delay))))
        });
        let resources = self.resources.into_iter().map(|resource| {
            let entry = ResourceEntry::remote(resource, Arc::new(ForwardedResource(to.clone())));
            Ok(CatalogItem::Resource(Arc::new(entry)))
        });
        let templates = self.resource_templates.into_iter().map(|template| {
            let read = Arc::new(ForwardedResource(to.clone()));
            let entry = TemplateEntry::remote(template, read, completers(to));
            entry.map(|entry| CatalogItem::Template(Arc::new(entry)))
        });
        let prompts = self
            .prompts
            .into_iter()
            .map(|prompt| Ok(CatalogItem::Prompt(Arc::new(forwarded_prompt(prompt, to)))));
        for item in tools.chain(resources).chain(templates).chain(prompts) {
            if let Err(error) = item.and_then(|item| catalog.add(item)) {
                tracing::warn!(%error, "skipping a forwarded definition");
            }
        }
        catalog
    }
}

/// Creates the entry of a forwarded tool.
fn forwarded_tool(definition: model::Tool, to: &Arc<dyn Forward>) -> ToolEntry {
    let handler = ForwardedTool { name: definition.name.clone(), to: to.clone() };
    ToolEntry::remote(definition, Box::new(handler))
}

/// Creates the entry of a tool that is not registered, so that its call is forwarded.
pub(super) fn unregistered_tool(name: &str, to: &Arc<dyn Forward>) -> ToolEntry {
    let definition = model::Tool {
        name: name.to_owned(),
        title: None,
        description: None,
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        annotations: None,
        execution: None,
        icons: None,
        meta: None,
    };
    forwarded_tool(definition, to)
}

fn forwarded_prompt(definition: model::Prompt, to: &Arc<dyn Forward>) -> PromptEntry {
    let handler = Arc::new(ForwardedPrompt { name: definition.name.clone(), to: to.clone() });
    PromptEntry::remote(definition, handler, completers(to))
}

/// Creates the entry of a prompt that is not registered, so that its request is forwarded.
pub(super) fn unregistered_prompt(name: &str, to: &Arc<dyn Forward>) -> PromptEntry {
    forwarded_prompt(model::Prompt { name: name.to_owned(), ..model::Prompt::default() }, to)
}

fn completers(to: &Arc<dyn Forward>) -> Completers {
    Completers::remote(Arc::new(ForwardedCompletion(to.clone())))
}

struct ForwardedTool {
    name: String,
    to: Arc<dyn Forward>,
}

impl ToolHandler for ForwardedTool {
    fn call(&self, arguments: &str, scope: &RequestScope<'_>) -> Result<ToolFuture, InvalidValue> {
        let arguments = RawValue::from_string(arguments.to_owned())
            .map_err(|error| InvalidValue { path: String::new(), reason: error.to_string() })?;
        Ok(self.to.call_tool(&self.name, arguments, scope.context()))
    }
}

struct ForwardedPrompt {
    name: String,
    to: Arc<dyn Forward>,
}

impl PromptHandler for ForwardedPrompt {
    fn get(
        &self,
        arguments: &BTreeMap<String, String>,
        scope: &RequestScope<'_>,
    ) -> Result<PromptFuture, InvalidValue> {
        Ok(self.to.get_prompt(&self.name, arguments.clone(), scope.context()))
    }
}

struct ForwardedResource(Arc<dyn Forward>);

impl ResourceHandler for ForwardedResource {
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        self.0.read_resource(uri, scope.context())
    }
}

impl TemplateHandler for ForwardedResource {
    fn read(&self, uri: &str, _: &Values, scope: &RequestScope<'_>) -> Result<ResourceFuture, InvalidValue> {
        Ok(self.0.read_resource(uri, scope.context()))
    }
}

struct ForwardedCompletion(Arc<dyn Forward>);

impl RemoteCompleter for ForwardedCompletion {
    fn complete(
        &self,
        params: CompleteParams,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<CompleteResult>> {
        self.0.complete(params, scope.context())
    }
}
