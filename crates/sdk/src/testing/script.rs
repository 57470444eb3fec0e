//! Scripted server, for tests of clients.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use linchpin_jsonrpc::code;
use linchpin_protocol::{Era, Method, Revision};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::reaction::Reaction;
use super::script_connection;
use crate::lock::lock;
use crate::transport::{Transport, TransportHandle, Wire};

type ScriptHandler = Arc<dyn Fn(&Value) -> Reaction + Send + Sync>;

/// Scripted server for tests of clients, used as a transport. Its output is a byte stream that is split into messages
/// like that of a real server. Clones share the record of received messages.
///
/// ```
/// use linchpin::testing::Script;
/// use linchpin::{Client, Revision};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let script = Script::with_revision(Revision::LATEST)
///     .on("tools/list", |_| json!({ "tools": [], "nextCursor": "again" }));
/// let client = Client::over(script.clone()).connect().await.unwrap();
/// let error = client.tools().all().await.unwrap_err();
/// assert!(error.to_string().contains("did not end"));
/// assert_eq!(script.received_messages("tools/list").len(), 2);
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a script is connected to with `Client::over`"]
pub struct Script {
    name: String,
    handlers: HashMap<String, ScriptHandler>,
    on_open: Reaction,
    on_response: Option<ScriptHandler>,
    record: Arc<ScriptRecord>,
}

/// Record of the messages that a scripted server received on all connections.
#[derive(Default)]
struct ScriptRecord {
    messages: Mutex<Vec<Value>>,
    connections: Mutex<usize>,
    changed: Notify,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// Creates a scripted server without methods. Each request fails until [`Self::on`] adds a handler.
    pub fn new() -> Self {
        let record: Arc<ScriptRecord> = Arc::default();
        let name = format!("a script ({:p})", Arc::as_ptr(&record));
        Script { name, handlers: HashMap::new(), on_open: Reaction::new(), on_response: None, record }
    }

    /// Creates a scripted server that supports one revision, declares all capabilities, and handles only the opening of
    /// a connection.
    pub fn with_revision(revision: Revision) -> Self {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
            "completions": {},
        });
        let info = json!({ "name": "script", "version": "1" });
        match revision.era() {
            Era::Session => Self::new().on(Method::Initialize.name(), move |_| {
                let version = revision.as_str();
                json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info })
            }),
            Era::Stateless => Self::new().on(Method::Discover.name(), move |_| {
                let (kind, versions) = ("complete", [revision.as_str()]);
                json!({
                    "resultType": kind, "supportedVersions": versions, "capabilities": capabilities,
                    "ttlMs": 0, "cacheScope": "private",
                })
            }),
        }
    }

    /// Sets how the scripted server reacts to requests or notifications of one method. `handler` receives the whole
    /// message. It replaces an earlier reaction to the method.
    pub fn on<R: Into<Reaction>>(
        mut self,
        method: &str,
        handler: impl Fn(&Value) -> R + Send + Sync + 'static,
    ) -> Self {
        self.handlers.insert(method.to_owned(), Arc::new(move |message| handler(message).into()));
        self
    }

    /// Sets the raw lines that the server writes in reaction to requests or notifications of one method.
    pub fn reply_with(
        self,
        method: &str,
        lines: impl Fn(&Value) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let all = |lines: Vec<String>| lines.iter().fold(Reaction::new(), |all, line| all.raw(line));
        self.on(method, move |message| all(lines(message)))
    }

    /// Sets how the scripted server reacts to a new connection.
    pub fn on_open(mut self, reaction: Reaction) -> Self {
        self.on_open = reaction;
        self
    }

    /// Sets how the scripted server reacts to responses to [`Reaction::request`].
    pub fn on_response(mut self, handler: impl Fn(&Value) -> Reaction + Send + Sync + 'static) -> Self {
        self.on_response = Some(Arc::new(handler));
        self
    }

    /// Returns all messages that the scripted server has received so far.
    pub fn messages(&self) -> Vec<Value> {
        lock(&self.record.messages).clone()
    }

    /// Returns all messages of one method that the scripted server has received so far.
    pub fn received_messages(&self, method: &str) -> Vec<Value> {
        let mut messages = self.messages();
        messages.retain(|message| message["method"] == method);
        messages
    }

    /// Returns the number of connections that were opened to the scripted server.
    pub fn connections(&self) -> usize {
        *lock(&self.record.connections)
    }

    /// Waits for a message of the client that satisfies a condition. Returns at once if it was already received.
    pub async fn wait_for(&self, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut changed = std::pin::pin!(self.record.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = self.messages().into_iter().find(&matches) {
                return found;
            }
            changed.await;
        }
    }

    pub(super) fn record(&self, message: &Value) {
        lock(&self.record.messages).push(message.clone());
        self.record.changed.notify_waiters();
    }

    /// Returns the scripted reaction to a message of the client.
    pub(super) fn reaction(&self, message: &Value) -> Reaction {
        let Some(method) = message["method"].as_str() else {
            return self.on_response.as_ref().map(|handler| handler(message)).unwrap_or_default();
        };
        match self.handlers.get(method) {
            Some(handler) => handler(message),
            None if message.get("id").is_some() => {
                Reaction::new().error(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"))
            }
            None => Reaction::new(),
        }
    }
}

impl Transport for Script {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>> {
        *lock(&self.record.connections) += 1;
        let line = script_connection::open(self.clone(), wire, self.on_open.clone());
        Box::pin(std::future::ready(Ok(line)))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
