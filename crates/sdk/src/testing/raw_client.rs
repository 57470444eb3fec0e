//! Raw client that sends arbitrary messages, for tests of servers.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;

use linchpin_jsonrpc::Outbox;
use linchpin_protocol::model::key;
use linchpin_protocol::{Era, Method, Revision};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use crate::Service;
use crate::server::{Connection, INPUT_ENDED, ReplyChannel, spawn};
use crate::transport::OutgoingMessages;

/// Test client that sends arbitrary messages to a server in this process, and returns its messages one by one.
///
/// ```
/// use linchpin::{NoArgs, Revision, Server, testing::RawClient};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let service = Server::new("demo", "1").tool("hello", "", |_: NoArgs| async { "Hello!" }).build().unwrap();
/// let mut client = RawClient::open(&service, Revision::LATEST_SESSION).await;
/// let answer = client.request("tools/call", json!({ "name": "hello" })).await;
/// assert_eq!(answer["result"]["content"][0]["text"], "Hello!");
///
/// client.send("not a message");
/// assert_eq!(client.next().await.unwrap()["error"]["code"], -32700);
/// # }
/// ```
pub struct RawClient {
    service: Service,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    outgoing: OutgoingMessages,
    /// Received messages that were not returned yet.
    unread_messages: VecDeque<String>,
    /// Revision of the requests, once a connection was opened.
    revision: Option<Revision>,
    last_id: i64,
    runtime: Handle,
}

impl RawClient {
    /// Connects to the server without sending anything.
    pub fn new(service: &Service) -> Self {
        let outbox = Arc::new(Outbox::without_callback(usize::MAX));
        RawClient {
            service: service.clone(),
            connection: Connection::new(service.clone(), outbox.clone(), ReplyChannel::Lasting),
            outgoing: OutgoingMessages::from_outbox(outbox.clone()),
            outbox,
            unread_messages: VecDeque::new(),
            revision: None,
            last_id: 0,
            runtime: Handle::current(),
        }
    }

    /// Connects, and opens a session if the revision has sessions.
    pub async fn open(service: &Service, revision: Revision) -> Self {
        let mut client = Self::new(service);
        client.revision = Some(revision);
        if revision.era() == Era::Session {
            let info = json!({ "name": "raw", "version": "1" });
            let version = revision.as_str();
            let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": info });
            client.request(Method::Initialize.name(), params).await;
            client.send(json!({ "jsonrpc": "2.0", "method": Method::Initialized.name() }));
        }
        client
    }

    /// Sends one line to the server: text, or a `Value`. It need not be valid.
    pub fn send(&mut self, line: impl Display) {
        let line = line.to_string();
        let limit = self.service.settings().max_message;
        if line.len() > limit {
            self.connection.reject_oversized(limit);
        } else if let Some(rest) = self.connection.receive(line.as_bytes()) {
            spawn(&self.runtime, self.connection.track(rest));
        }
    }

    /// Returns the next line that the server has sent; `None` at the end. A line that is not JSON is returned as a
    /// string.
    pub async fn next(&mut self) -> Option<Value> {
        let line = self.next_line().await?;
        Some(serde_json::from_str(&line).unwrap_or(Value::String(line)))
    }

    /// Returns the next line that the server sends, unparsed.
    pub async fn next_line(&mut self) -> Option<String> {
        while self.unread_messages.is_empty() {
            self.receive_more().await?;
        }
        self.unread_messages.pop_front()
    }

    async fn receive_more(&mut self) -> Option<()> {
        let lines = self.outgoing.next().await?;
        let lines = String::from_utf8_lossy(&lines).into_owned();
        self.unread_messages.extend(lines.lines().map(str::to_owned));
        Some(())
    }

    /// Sends a request with a new id and the metadata that the revision requires, and returns its response. Messages
    /// received before the response remain available to [`Self::next`].
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = Value::from(self.last_id);
        let params = self.with_meta(params);
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let mut inspected = 0;
        loop {
            for index in inspected..self.unread_messages.len() {
                let message: Value = serde_json::from_str(&self.unread_messages[index]).unwrap_or_default();
                if message.get("method").is_none() && message["id"] == id {
                    self.unread_messages.remove(index);
                    return message;
                }
            }
            inspected = self.unread_messages.len();
            if self.receive_more().await.is_none() {
                return Value::Null;
            }
        }
    }

    fn with_meta(&self, params: Value) -> Value {
        let Some(revision) = self.revision.filter(|revision| revision.era() == Era::Stateless) else {
            return params;
        };
        let mut params = params.as_object().cloned().unwrap_or_default();
        let meta = params.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            let info = json!({ "name": "raw", "version": "1" });
            meta.entry(key::PROTOCOL_VERSION).or_insert_with(|| revision.as_str().into());
            meta.entry(key::CLIENT_INFO).or_insert(info);
            meta.entry(key::CLIENT_CAPABILITIES).or_insert_with(|| json!({}));
        }
        Value::Object(params)
    }

    /// Ends the input of the server, and returns all its remaining messages.
    pub async fn close(mut self) -> Vec<Value> {
        self.connection.finish(INPUT_ENDED, self.service.settings().shutdown_timeout).await;
        let mut rest = Vec::new();
        while !self.unread_messages.is_empty() || !self.outbox.is_empty() {
            rest.extend(self.next().await);
        }
        rest
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        self.connection.abandon();
    }
}
