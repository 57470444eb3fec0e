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
use linchpin_protocol::wire::Invalid;
use linchpin_protocol::{Era, Error as ProtocolError, code};
use serde_json::value::RawValue;
use tokio::runtime::Handle as Runtime;

use super::catalog::{Catalog, Entry, Item, Kind, Live, check_name};
use super::definitions::completion::{Completers, Forward};
use super::definitions::prompt::{Fill, Filling, PromptEntry};
use super::definitions::resource::{Read, ReadMatch, Reading, ResourceEntry, TemplateEntry, Values};
use super::definitions::tool::{self, ToolEntry};
use super::request::scope::Scope;
use super::skills::{self, Remote, SkillEntry};
use super::spawn::start;
use super::{BoxFuture, Context};
use crate::client::{Answerer, Call, Changed, Client, ClientError};
use crate::lock::lock;
use crate::server_request::{Question, Reply};
use crate::{Error, Result};

/// Timeout of a forwarded call. It is long because the caller decides when to cancel.
const UNTIL_GIVEN_UP: Duration = Duration::from_hours(24);

/// Connection to one remote server.
pub(crate) struct Proxy {
    client: Client,
    prefix: String,
    /// Definitions that are registered for it, by kind.
    registered: Mutex<BTreeMap<Kind, Vec<Registered>>>,
    /// Held while a list is fetched, so that an older list never replaces a newer one.
    refreshing: tokio::sync::Mutex<()>,
    /// Bit set of the lists that have changed since they were fetched.
    stale: AtomicU8,
}

impl Proxy {
    /// Registers the definitions of the remote server, and follows its changes.
    pub(crate) async fn register(prefix: &str, client: Client, live: &Arc<Live>) -> Result<()> {
        let proxy = Arc::new(Proxy {
            client,
            prefix: prefix.to_owned(),
            registered: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            stale: AtomicU8::new(0),
        });
        // Weak references: the server owns the client, so the client must not own the server.
        let (weak, server, runtime) = (Arc::downgrade(&proxy), Arc::downgrade(live), Runtime::current());
        let changed = move |changed| {
            let (weak, server) = (weak.clone(), server.clone());
            start(&runtime, async move { refresh_later(weak, server, changed).await });
        };
        // Subscribe before the lists are fetched, so that no change is missed.
        proxy.client.watch_changes(Box::new(changed)).await?;
        for kind in [Kind::Tools, Kind::Resources, Kind::Prompts] {
            proxy.refresh(kind, live).await?;
        }
        live.keep(proxy);
        Ok(())
    }

    /// Fetches a list and replaces the registered definitions.
    async fn refresh(self: &Arc<Self>, kind: Kind, live: &Arc<Live>) -> Result<()> {
        let _turn = self.refreshing.lock().await;
        self.stale.fetch_and(!(1 << kind as u8), Ordering::AcqRel);
        let items = self.list(kind).await?;
        live.change(|catalog| {
            let mut registered = lock(&self.registered);
            let mut next = catalog.clone(); // a name conflict must not leave a partial list
            for item in registered.get(&kind).into_iter().flatten() {
                item.remove(&mut next);
            }
            let names = items.iter().map(Registered::of).collect();
            for item in items {
                next.add(item)?;
            }
            *catalog = next;
            registered.insert(kind, names);
            Ok(())
        })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Item>> {
        let (client, can) = (&self.client, self.client.capabilities().clone());
        let mut items = Vec::new();
        match kind {
            Kind::Tools if can.tools.is_some() => {
                for tool in client.tools().all().await? {
                    match self.tool(tool) {
                        Ok(tool) => items.push(tool),
                        Err(error) => tracing::warn!(%error, "skipping remote tool"),
                    }
                }
            }
            Kind::Prompts if can.prompts.is_some() => {
                items.extend(client.prompts().all().await?.into_iter().map(|prompt| self.prompt(prompt)));
            }
            Kind::Resources if can.resources.is_some() => {
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

    fn tool(&self, mut definition: model::Tool) -> Result<Item> {
        let name = self.prefixed(&definition.name);
        check_name("tool", &name)?;
        let call =
            RemoteTool { client: self.client.clone(), name: std::mem::replace(&mut definition.name, name) };
        definition.execution = None; // tasks are not forwarded
        Ok(Item::Tool(Arc::new(ToolEntry::remote(definition, Box::new(call)))))
    }

    fn prompt(&self, mut definition: model::Prompt) -> Item {
        let name = self.prefixed(&definition.name);
        let name = std::mem::replace(&mut definition.name, name);
        let reference = CompletionReference::Prompt { name: name.clone(), title: None };
        let completers = Completers::forward(Arc::new(RemoteCompletion(self.client.clone(), reference)));
        let fill = Arc::new(RemotePrompt { client: self.client.clone(), name });
        Item::Prompt(Arc::new(PromptEntry::remote(definition, fill, completers)))
    }

    fn resource(&self, definition: model::Resource) -> Item {
        Item::Resource(Arc::new(ResourceEntry::remote(
            definition,
            Arc::new(RemoteResource(self.client.clone())),
        )))
    }

    /// Returns the skills of the remote server. A failure to list them does not prevent the rest from being registered.
    async fn skills(&self) -> Vec<Item> {
        if !self.client.offers(extension::SKILLS) {
            return Vec::new();
        }
        let skills = self.client.skills().all().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list the skills of a remote server");
            Vec::new()
        });
        let remote = Arc::new(RemoteResource(self.client.clone()));
        skills
            .into_iter()
            .map(|skill| Item::Skill(Arc::new(SkillEntry::remote(skill, remote.clone()))))
            .collect()
    }

    fn template(&self, definition: model::ResourceTemplate) -> Result<Item> {
        let reference = CompletionReference::Resource { uri: definition.uri_template.clone() };
        let completers = Completers::forward(Arc::new(RemoteCompletion(self.client.clone(), reference)));
        let read = Arc::new(RemoteResource(self.client.clone()));
        Ok(Item::Template(Arc::new(TemplateEntry::remote(definition, read, completers)?)))
    }
}

/// Key of a registered definition.
enum Registered {
    Tool(Arc<str>),
    Prompt(Arc<str>),
    Resource(Arc<str>),
    Template(Arc<str>),
    Skill(Arc<str>),
}

impl Registered {
    fn of(item: &Item) -> Self {
        match item {
            Item::Tool(entry) => Registered::Tool(entry.key().clone()),
            Item::Prompt(entry) => Registered::Prompt(entry.key().clone()),
            Item::Resource(entry) => Registered::Resource(entry.key().clone()),
            Item::Template(entry) => Registered::Template(entry.key().clone()),
            Item::Skill(entry) => Registered::Skill(entry.key().clone()),
        }
    }

    fn remove(&self, catalog: &mut Catalog) -> bool {
        match self {
            Registered::Tool(name) => catalog.tools.remove(name),
            Registered::Prompt(name) => catalog.prompts.remove(name),
            Registered::Resource(uri) => catalog.remove_resource(uri),
            Registered::Template(text) => catalog.templates.remove(text),
            Registered::Skill(uri) => skills::remove(catalog, uri),
        }
    }
}

async fn refresh_later(proxy: Weak<Proxy>, live: Weak<Live>, changed: Changed) {
    let (Some(proxy), Some(live)) = (proxy.upgrade(), live.upgrade()) else { return };
    let kind = match changed {
        Changed::Tools => Kind::Tools,
        Changed::Resources => Kind::Resources,
        Changed::Prompts => Kind::Prompts,
    };
    if proxy.stale.fetch_or(1 << kind as u8, Ordering::AcqRel) & (1 << kind as u8) != 0 {
        return; // a refresh is already pending
    }
    match proxy.refresh(kind, &live).await {
        Ok(()) => live.announce(kind),
        Err(error) => tracing::warn!(%error, ?changed, "failed to refresh a remote list"),
    }
}

/// Forwards server requests of the remote server to the caller.
struct ByContext(Context);

impl Answerer for ByContext {
    fn answer(&self, question: Question) -> BoxFuture<Result<Reply>> {
        let cx = self.0.clone();
        Box::pin(async move { cx.ask(question).await })
    }
}

/// Returns the capabilities of the caller that the remote server may use.
fn capabilities(cx: &Context) -> ClientCapabilities {
    let own = cx.capabilities();
    ClientCapabilities {
        elicitation: own.elicitation.clone().filter(|_| cx.revision().has(Feature::Elicitation)),
        sampling: own.sampling.clone(),
        roots: own.roots.clone(),
        tasks: None,
        extensions: None,
        experimental: None,
    }
}

/// Connects a forwarded call to the caller's request: timeout, server requests, progress.
fn pass_on<T>(call: Call<T>, cx: &Context) -> Call<T> {
    let call = call.timeout(UNTIL_GIVEN_UP).answered_by(Arc::new(ByContext(cx.clone())), capabilities(cx));
    let (wants_progress, cx) = (cx.wants_progress(), cx.clone());
    if wants_progress { call.progress(move |progress| cx.progress(progress)) } else { call }
}

/// Converts an error of the remote server for the caller's revision.
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

impl tool::Call for RemoteTool {
    fn call(&self, arguments: &str, scope: &Scope<'_>) -> Result<tool::Work, Invalid> {
        let arguments = RawValue::from_string(arguments.to_owned())
            .map_err(|error| Invalid { path: String::new(), reason: error.to_string() })?;
        let (client, name, cx) = (self.client.clone(), self.name.clone(), scope.context());
        Ok(Box::pin(async move {
            let result: Result<CallToolResult, ClientError> =
                pass_on(client.call(name, arguments), &cx).await;
            result.map_err(|error| remote_error(error, &cx))
        }))
    }
}

struct RemotePrompt {
    client: Client,
    name: String,
}

impl Fill for RemotePrompt {
    fn fill(&self, arguments: &BTreeMap<String, String>, scope: &Scope<'_>) -> Result<Filling, Invalid> {
        let (client, name, cx) = (self.client.clone(), self.name.clone(), scope.context());
        let arguments = arguments.clone();
        Ok(Box::pin(async move {
            let result = pass_on(client.prompt(name, arguments), &cx).await;
            result.map_err(|error| remote_error(error, &cx))
        }))
    }
}

struct RemoteResource(Client);

impl RemoteResource {
    fn pass_on(&self, uri: &str, scope: &Scope<'_>) -> Reading {
        let (client, uri, cx) = (self.0.clone(), uri.to_owned(), scope.context());
        Box::pin(async move {
            let result = pass_on(client.read(&*uri), &cx).await;
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

impl Read for RemoteResource {
    fn read(&self, uri: &str, scope: &Scope<'_>) -> Reading {
        self.pass_on(uri, scope)
    }
}

impl Remote for RemoteResource {
    fn reads_directories(&self) -> bool {
        self.0.reads_directories()
    }

    fn directory(
        &self,
        uri: &str,
        cursor: Option<String>,
        scope: &Scope<'_>,
    ) -> BoxFuture<Result<ReadResourceDirectoryResult>> {
        let params = ReadResourceDirectoryParams { uri: uri.to_owned(), cursor, meta: None };
        let (call, cx) = (self.0.read_directory(&params), scope.context());
        Box::pin(async move { pass_on(call, &cx).await.map_err(|error| remote_error(error, &cx)) })
    }
}

impl ReadMatch for RemoteResource {
    fn read(&self, uri: &str, _: &Values, scope: &Scope<'_>) -> Result<Reading, Invalid> {
        Ok(self.pass_on(uri, scope))
    }
}

struct RemoteCompletion(Client, CompletionReference);

impl Forward for RemoteCompletion {
    fn complete(&self, params: CompleteParams, scope: &Scope<'_>) -> BoxFuture<Result<CompleteResult>> {
        let call = self.0.complete_with(&CompleteParams { reference: self.1.clone(), meta: None, ..params });
        let cx = scope.context();
        Box::pin(async move { pass_on(call, &cx).await.map_err(|error| remote_error(error, &cx)) })
    }
}
