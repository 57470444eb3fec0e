//! Clients: a connection to a server, and what can be asked over it.

mod error;

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::{Limits, Message, Peer, parse};
use linchpin_protocol::encode::{Encode, to_value};
use linchpin_protocol::model::{
    CallToolParams, CallToolResult, ClientCapabilities, Implementation, InitializeParams, InitializeResult,
    ListToolsResult, ServerCapabilities, Tool, key,
};
use linchpin_protocol::{Era, Method, Revision, wire};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use error::ClientError;

use crate::server::Service;
use crate::transport::memory::{Link, Receiver};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Answers that a server may owe.
const MAX_WAITING: usize = 1_024;
/// Pages of one list: more is a server that never ends.
const MAX_PAGES: usize = 64;

/// A connected client.
pub struct Client {
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    revision: Revision,
    server: InitializeResult,
}

struct Inbox {
    peer: Peer,
}

impl Receiver for Inbox {
    fn receive(&self, line: &[u8]) {
        match parse(line, Limits::default()) {
            Ok(Message::Response { id, reply }) => {
                self.peer.answer(id.as_ref(), reply);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the server sent something that is no message"),
        }
    }
}

impl Client {
    /// Connects to a server in this process, in the newest revision with sessions.
    pub(crate) async fn in_memory(service: &Service) -> Result<Self, ClientError> {
        let link = Link::new(service);
        let outbox = link.outbox().clone();
        let cancelled = outbox.clone();
        let peer = Peer::new(outbox, MAX_WAITING, move |id, reason| {
            cancelled.send(|out| {
                let params = serde_json::json!({ "requestId": id_value(id), "reason": reason });
                linchpin_jsonrpc::write::notification(Method::Cancelled.name(), out, |out| {
                    linchpin_jsonrpc::write::value(&params, out);
                });
            });
        });
        let inbox = Arc::new(Inbox { peer });
        let receiver: Arc<dyn Receiver> = inbox.clone();
        link.set_receiver(Arc::downgrade(&receiver));
        let revision = Revision::LATEST_SESSION;
        let info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let params = InitializeParams {
            protocol_version: revision.as_str().to_owned(),
            capabilities: ClientCapabilities::default(),
            client_info: info.clone(),
            meta: None,
        };
        let server = InitializeResult {
            protocol_version: String::new(),
            capabilities: ServerCapabilities::default(),
            server_info: Implementation::default(),
            instructions: None,
            meta: None,
        };
        let mut client = Client { link, inbox, revision, server };
        let server: InitializeResult = client.request(Method::Initialize.name(), &params).await?;
        client.revision = server
            .protocol_version
            .parse()
            .map_err(|_| ClientError::UnsupportedVersion(server.protocol_version.clone()))?;
        client.server = server;
        client.notify(Method::Initialized.name(), &Value::Null);
        Ok(client)
    }

    /// What the server said of itself.
    pub fn server(&self) -> &InitializeResult {
        &self.server
    }

    /// The revision that is spoken.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Sends a request and decodes its result.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &(impl Encode + ?Sized),
    ) -> Result<T, ClientError> {
        let params = self.framed(to_value(params, self.revision));
        let call =
            self.inbox.peer.request(method, TIMEOUT, |out| linchpin_jsonrpc::write::value(&params, out))?;
        let result = call.await?;
        wire::decode(&result).map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })
    }

    /// Sends a notification; `null` for none params.
    pub fn notify(&self, method: &str, params: &(impl Encode + ?Sized)) {
        let params = to_value(params, self.revision);
        self.inbox.peer.notify(method, |out| {
            if !params.is_null() {
                linchpin_jsonrpc::write::value(&params, out);
            }
        });
    }

    /// In the stateless era every request says who asks.
    fn framed(&self, params: Value) -> Value {
        if self.revision.era() == Era::Session {
            return params;
        }
        let mut params = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        let meta = params.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        meta[key::PROTOCOL_VERSION] = self.revision.as_str().into();
        meta[key::CLIENT_CAPABILITIES] = Value::Object(Map::new());
        Value::Object(params)
    }

    /// All tools of the server.
    pub async fn list_tools(&self) -> Result<Vec<Tool>, ClientError> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = linchpin_protocol::model::PageParams { cursor: cursor.clone(), meta: None };
            let page: ListToolsResult = self.request(Method::ListTools.name(), &params).await?;
            tools.extend(page.tools);
            if page.next_cursor.is_none() {
                return Ok(tools);
            }
            if page.next_cursor == cursor {
                break;
            }
            cursor = page.next_cursor;
        }
        Err(ClientError::EndlessList(Method::ListTools.name()))
    }

    /// Calls a tool; `arguments` is a JSON object.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ClientError> {
        let arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            Value::Null => None,
            other => return Err(ClientError::BadArguments(other.to_string())),
        };
        let params = CallToolParams {
            name: tool.to_owned(),
            arguments,
            input_responses: None,
            request_state: None,
            task: None,
            meta: None,
        };
        self.request(Method::CallTool.name(), &params).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.link.close();
    }
}

fn id_value(id: &linchpin_jsonrpc::Id<'_>) -> Value {
    match id {
        linchpin_jsonrpc::Id::Number(number) => (*number).into(),
        linchpin_jsonrpc::Id::String(text) => (&**text).into(),
    }
}
