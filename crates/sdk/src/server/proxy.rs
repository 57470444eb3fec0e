//! Proxy of a remote server: its definitions are registered here, and calls are forwarded to it with progress,
//! cancellation and server requests, whichever revision each side uses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use linchpin_jsonrpc::{CallError, ErrorObject};
use linchpin_protocol::model::{
    self, CallToolResult, ClientCapabilities, CompleteParams, CompleteResult, CompletionReference,
    ReadResourceDirectoryParams, ReadResourceDirectoryResult, extension,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::InvalidValue;
use linchpin_protocol::{Era, Error as ProtocolError, code};
use serde_json::value::RawValue;
use tokio::runtime::Handle as Runtime;

use super::catalog::{Catalog, CatalogEntry, CatalogItem, ListKind, LiveCatalog, check_name};
use super::definitions::completion::{Completers, RemoteCompleter};
use super::definitions::prompt::{PromptEntry, PromptFuture, PromptHandler};
use super::definitions::resource::{
    ResourceEntry, ResourceFuture, ResourceHandler, TemplateEntry, TemplateHandler, Values,
};
use super::definitions::tool::{self, ToolEntry};
use super::request::scope::RequestScope;
use super::skills::{self, RemoteSkillReader, SkillEntry};
use super::spawn::spawn;
use super::{BoxFuture, Context};
use crate::client::{Call, Client, ClientError, ListChanged, ServerRequestHandler};
use crate::lock::lock;
use crate::server_request::{ClientResult, ServerRequest};
use crate::{Error, Result};

/// Timeout of a call that the proxy forwards to the remote server. It is long because the caller decides when to
/// cancel.
const FORWARDED_CALL_TIMEOUT: Duration = Duration::from_hours(24);

/// Proxy of one remote server: its client, and the definitions that are registered for it.
pub(crate) struct RemoteProxy {
    client: Client,
    prefix: String,
    /// Definitions that this proxy has registered for the remote server, by kind.
    registered: Mutex<BTreeMap<ListKind, Vec<RegisteredItem>>>,
    /// Lock held while a list is fetched, so that an older list never replaces a newer one.
    refresh_lock: tokio::sync::Mutex<()>,
    /// Bit set of the lists that have changed since they were fetched.
    stale_lists: AtomicU8,
}

impl RemoteProxy {
    /// Registers the definitions of the remote server, and follows its changes.
    pub(crate) async fn register(prefix: &str, client: Client, live: &Arc<LiveCatalog>) -> Result<()> {
        let proxy = Arc::new(RemoteProxy {
            client,
            prefix: prefix.to_owned(),
            registered: Mutex::default(),
            refresh_lock: tokio::sync::Mutex::default(),
            stale_lists: AtomicU8::new(0),
        });
        // Weak references: the server owns the client, so the client must not own the server.
        let (weak_proxy, server, runtime) =
            (Arc::downgrade(&proxy), Arc::downgrade(live), Runtime::current());
        let changed = move |changed| {
            let (weak_proxy, server) = (weak_proxy.clone(), server.clone());
            spawn(&runtime, async move { refresh_later(weak_proxy, server, changed).await });
        };
        // Subscribe before the lists are fetched, so that no change is missed.
        proxy.client.watch_changes(Box::new(changed)).await?;
        for kind in [ListKind::Tools, ListKind::Resources, ListKind::Prompts] {
            proxy.refresh(kind, live).await?;
        }
        live.retain(proxy);
        Ok(())
    }

    /// Fetches a list of the remote server and replaces the registered definitions.
    async fn refresh(self: &Arc<Self>, kind: ListKind, live: &Arc<LiveCatalog>) -> Result<()> {
        let _turn = self.refresh_lock.lock().await;
        self.stale_lists.fetch_and(!(1 << kind as u8), Ordering::AcqRel);
        let items = self.list(kind).await?;
        live.change(|catalog| {
            let mut registered = lock(&self.registered);
            let mut next = catalog.clone(); // a name conflict must not leave a partial list
            for item in registered.get(&kind).into_iter().flatten() {
                item.remove(&mut next);
            }
            let names = items.iter().map(RegisteredItem::from_item).collect();
            for item in items {
                next.add(item)?;
            }
            *catalog = next;
            registered.insert(kind, names);
            Ok(())
        })
    }

    async fn list(&self, kind: ListKind) -> Result<Vec<CatalogItem>> {
        let (client, capabilities) = (&self.client, self.client.capabilities().clone());
        let mut items = Vec::new();
        match kind {
            ListKind::Tools if capabilities.tools.is_some() => {
                for tool in client.tools().all().await? {
                    match self.tool(tool) {
                        Ok(tool) => items.push(tool),
                        Err(error) => {
                            tracing::warn!(%error, "skipping a tool of a remote server: it cannot be registered");
                        }
                    }
                }
            }
            ListKind::Prompts if capabilities.prompts.is_some() => {
                items.extend(client.prompts().all().await?.into_iter().map(|prompt| self.prompt(prompt)));
            }
            ListKind::Resources if capabilities.resources.is_some() => {
                items.extend(
                    client.resources().all().await?.into_iter().map(|resource| self.resource(resource)),
                );
                for template in client.resource_templates().all().await? {
                    items.push(self.template(template)?);
                }
                items.extend(self.skills().await);
            }
            _ => {}
        }
        Ok(items)
    }

    fn prefixed(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}_{name}", self.prefix) }
    }

    fn tool(&self, mut definition: model::Tool) -> Result<CatalogItem> {
        let name = self.prefixed(&definition.name);
        check_name("tool", &name)?;
        let call =
            RemoteTool { client: self.client.clone(), name: std::mem::replace(&mut definition.name, name) };
        definition.execution = None; // tasks are not forwarded
        Ok(CatalogItem::Tool(Arc::new(ToolEntry::remote(definition, Box::new(call)))))
    }

    fn prompt(&self, mut definition: model::Prompt) -> CatalogItem {
        let name = self.prefixed(&definition.name);
        let name = std::mem::replace(&mut definition.name, name);
        let reference = CompletionReference::Prompt { name: name.clone(), title: None };
        let completers = Completers::remote(Arc::new(RemoteCompletion(self.client.clone(), reference)));
        let handler = Arc::new(RemotePrompt { client: self.client.clone(), name });
        CatalogItem::Prompt(Arc::new(PromptEntry::remote(definition, handler, completers)))
    }

    fn resource(&self, definition: model::Resource) -> CatalogItem {
        CatalogItem::Resource(Arc::new(ResourceEntry::remote(
            definition,
            Arc::new(RemoteResource(self.client.clone())),
        )))
    }

    /// Returns the skills of the remote server. A failure to list them does not prevent the rest from being registered.
    async fn skills(&self) -> Vec<CatalogItem> {
        if !self.client.has_extension(extension::SKILLS) {
            return Vec::new();
        }
        let skills = self.client.skills().all().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list the skills of a remote server");
            Vec::new()
        });
        let remote = Arc::new(RemoteResource(self.client.clone()));
        skills
            .into_iter()
            .map(|skill| CatalogItem::Skill(Arc::new(SkillEntry::remote(skill, remote.clone()))))
            .collect()
    }

    fn template(&self, definition: model::ResourceTemplate) -> Result<CatalogItem> {
        let reference = CompletionReference::Resource { uri: definition.uri_template.clone() };
        let completers = Completers::remote(Arc::new(RemoteCompletion(self.client.clone(), reference)));
        let read = Arc::new(RemoteResource(self.client.clone()));
        Ok(CatalogItem::Template(Arc::new(TemplateEntry::remote(definition, read, completers)?)))
    }
}

/// Kind and name of a definition that the proxy has registered for its remote server.
enum RegisteredItem {
    Tool(Arc<str>),
    Prompt(Arc<str>),
    Resource(Arc<str>),
    Template(Arc<str>),
    Skill(Arc<str>),
}

impl RegisteredItem {
    fn from_item(item: &CatalogItem) -> Self {
        match item {
            CatalogItem::Tool(entry) => RegisteredItem::Tool(entry.key().clone()),
            CatalogItem::Prompt(entry) => RegisteredItem::Prompt(entry.key().clone()),
            CatalogItem::Resource(entry) => RegisteredItem::Resource(entry.key().clone()),
            CatalogItem::Template(entry) => RegisteredItem::Template(entry.key().clone()),
            CatalogItem::Skill(entry) => RegisteredItem::Skill(entry.key().clone()),
        }
    }

    fn remove(&self, catalog: &mut Catalog) -> bool {
        match self {
            RegisteredItem::Tool(name) => catalog.tools.remove(name),
            RegisteredItem::Prompt(name) => catalog.prompts.remove(name),
            RegisteredItem::Resource(uri) => catalog.remove_resource(uri),
            RegisteredItem::Template(text) => catalog.templates.remove(text),
            RegisteredItem::Skill(uri) => skills::remove(catalog, uri),
        }
    }
}

async fn refresh_later(proxy: Weak<RemoteProxy>, live: Weak<LiveCatalog>, changed: ListChanged) {
    let (Some(proxy), Some(live)) = (proxy.upgrade(), live.upgrade()) else { return };
    let kind = match changed {
        ListChanged::Tools => ListKind::Tools,
        ListChanged::Resources => ListKind::Resources,
        ListChanged::Prompts => ListKind::Prompts,
    };
    if proxy.stale_lists.fetch_or(1 << kind as u8, Ordering::AcqRel) & (1 << kind as u8) != 0 {
        return; // a refresh is already pending
    }
    match proxy.refresh(kind, &live).await {
        Ok(()) => live.announce(kind),
        Err(error) => tracing::warn!(%error, ?changed, "failed to refresh a remote list"),
    }
}

/// Handler that forwards requests of the remote server to the client whose call caused them.
struct ForwardToCaller(Context);

impl ServerRequestHandler for ForwardToCaller {
    fn handle(&self, request: ServerRequest, name: Option<&str>) -> BoxFuture<Result<ClientResult>> {
        let (cx, name) = (self.0.clone(), name.map(str::to_owned));
        Box::pin(async move { cx.forward_server_request(request, name.as_deref()).await })
    }
}

/// Returns the capabilities of the caller that the remote server may use.
fn capabilities(cx: &Context) -> ClientCapabilities {
    let caller_capabilities = cx.capabilities();
    ClientCapabilities {
        elicitation: caller_capabilities
            .elicitation
            .clone()
            .filter(|_| cx.revision().has(Feature::Elicitation)),
        sampling: caller_capabilities.sampling.clone(),
        roots: caller_capabilities.roots.clone(),
        tasks: None,
        extensions: None,
        experimental: None,
    }
}

/// Connects a call to the remote server with the request of the caller: timeout, server requests, progress.
fn forward_call<T>(call: Call<T>, cx: &Context) -> Call<T> {
    let call = call
        .timeout(FORWARDED_CALL_TIMEOUT)
        .on_own_server_request(Arc::new(ForwardToCaller(cx.clone())))
        .capabilities(capabilities(cx));
    let (wants_progress, cx) = (cx.wants_progress(), cx.clone());
    if wants_progress { call.progress(move |progress| cx.progress(progress)) } else { call }
}

/// Converts an error of the remote server into one that the revision of the caller allows.
fn remote_error(error: ClientError, cx: &Context) -> Error {
    match error {
        ClientError::Call(CallError::Rejected(error))
            if error.code == code::MISSING_CLIENT_CAPABILITY && cx.revision().era() == Era::Session =>
        {
            Error::tool(format!("cannot send a request to this client: {}", error.message))
        }
        ClientError::Call(CallError::Rejected(ErrorObject { code, message, data })) => {
            ProtocolError::Custom { code, message, data }.into()
        }
        error => Error::tool(format!("the remote server failed: {error}")),
    }
}

struct RemoteTool {
    client: Client,
    name: String,
}

impl tool::ToolHandler for RemoteTool {
    fn call(&self, arguments: &str, scope: &RequestScope<'_>) -> Result<tool::ToolFuture, InvalidValue> {
        let arguments = RawValue::from_string(arguments.to_owned())
            .map_err(|error| InvalidValue { path: String::new(), reason: error.to_string() })?;
        let (client, name, cx) = (self.client.clone(), self.name.clone(), scope.context());
        Ok(Box::pin(async move {
            let result: Result<CallToolResult, ClientError> =
                forward_call(client.call(name, arguments), &cx).await;
            result.map_err(|error| remote_error(error, &cx))
        }))
    }
}

struct RemotePrompt {
    client: Client,
    name: String,
}

impl PromptHandler for RemotePrompt {
    fn get(
        &self,
        arguments: &BTreeMap<String, String>,
        scope: &RequestScope<'_>,
    ) -> Result<PromptFuture, InvalidValue> {
        let (client, name, cx) = (self.client.clone(), self.name.clone(), scope.context());
        let arguments = arguments.clone();
        Ok(Box::pin(async move {
            let result = forward_call(client.prompt(name, arguments), &cx).await;
            result.map_err(|error| remote_error(error, &cx))
        }))
    }
}

struct RemoteResource(Client);

impl RemoteResource {
    fn forward(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        let (client, uri, cx) = (self.0.clone(), uri.to_owned(), scope.context());
        Box::pin(async move {
            let result = forward_call(client.read(&*uri), &cx).await;
            result.map_err(|error| match error {
                ClientError::Call(CallError::Rejected(error)) if is_not_found(&error) => {
                    Error::resource_not_found(uri)
                }
                error => remote_error(error, &cx),
            })
        })
    }
}

/// Returns whether an error means "not found"; the code differs between revisions.
fn is_not_found(error: &ErrorObject) -> bool {
    let names_uri = error.data.as_ref().is_some_and(|data| data.get("uri").is_some());
    error.code == code::RESOURCE_NOT_FOUND || (error.code == code::INVALID_PARAMS && names_uri)
}

impl ResourceHandler for RemoteResource {
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        self.forward(uri, scope)
    }
}

impl RemoteSkillReader for RemoteResource {
    fn reads_directories(&self) -> bool {
        self.0.can_list_directories()
    }

    fn directory(
        &self,
        uri: &str,
        cursor: Option<String>,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<ReadResourceDirectoryResult>> {
        let params = ReadResourceDirectoryParams { uri: uri.to_owned(), cursor, meta: None };
        let (call, cx) = (self.0.read_directory(&params), scope.context());
        Box::pin(async move { forward_call(call, &cx).await.map_err(|error| remote_error(error, &cx)) })
    }
}

impl TemplateHandler for RemoteResource {
    fn read(&self, uri: &str, _: &Values, scope: &RequestScope<'_>) -> Result<ResourceFuture, InvalidValue> {
        Ok(self.forward(uri, scope))
    }
}

struct RemoteCompletion(Client, CompletionReference);

impl RemoteCompleter for RemoteCompletion {
    fn complete(
        &self,
        params: CompleteParams,
        scope: &RequestScope<'_>,
    ) -> BoxFuture<Result<CompleteResult>> {
        let call = self.0.complete_with(&CompleteParams { reference: self.1.clone(), meta: None, ..params });
        let cx = scope.context();
        Box::pin(async move { forward_call(call, &cx).await.map_err(|error| remote_error(error, &cx)) })
    }
}
