//! Clients: a connection to a server, and what can be asked over it.

mod error;

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::write;
use linchpin_jsonrpc::{CallError, Limits, Message, Peer, parse};
use linchpin_protocol::encode::{Encode, Encoder, to_vec};
use linchpin_protocol::model::{
    CallToolParams, CallToolResult, CancelledParams, ClientCapabilities, EmptyParams, Implementation,
    InitializeParams, InitializeResult, ListToolsResult, PageParams, Tool,
};
use linchpin_protocol::{Method, Revision, wire};
use serde::de::DeserializeOwned;
use serde_json::Value;

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
            Err(error) => {
                tracing::warn!(%error, "the server sent something that is no message");
                if let Some(id) = error.id.as_ref().filter(|_| error.is_response) {
                    self.peer.fail(id, CallError::Malformed(error.to_string()));
                }
            }
        }
    }
}

impl Client {
    /// Connects to a server in this process, in the newest revision with sessions.
    pub(crate) async fn in_memory(service: &Service) -> Result<Self, ClientError> {
        let link = Link::new(service);
        let outbox = link.outbox().clone();
        let revision = Revision::LATEST_SESSION;
        let peer = Peer::new(outbox.clone(), MAX_WAITING, move |id, reason| {
            let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
            let params = CancelledParams { request_id, reason, meta: None };
            outbox.send(|out| {
                let encode = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision });
                write::notification(Method::Cancelled.name(), out, encode);
            });
        });
        let inbox = Arc::new(Inbox { peer });
        let receiver: Arc<dyn Receiver> = inbox.clone();
        link.set_receiver(Arc::downgrade(&receiver));
        let params = InitializeParams {
            protocol_version: revision.as_str().to_owned(),
            capabilities: ClientCapabilities::default(),
            client_info: Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
            meta: None,
        };
        let server: InitializeResult = ask(&inbox.peer, revision, Method::Initialize.name(), &params).await?;
        let unknown = |_| ClientError::UnsupportedVersion(server.protocol_version.clone());
        let revision = server.protocol_version.parse().map_err(unknown)?;
        let client = Client { link, inbox, revision, server };
        client.notify(Method::Initialized.name(), &EmptyParams::default());
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
        ask(&self.inbox.peer, self.revision, method, params).await
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: &(impl Encode + ?Sized)) {
        let params = to_vec(params, self.revision);
        self.inbox.peer.notify(method, |out| out.extend_from_slice(&params));
    }

    /// All tools of the server.
    pub async fn list_tools(&self) -> Result<Vec<Tool>, ClientError> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = PageParams { cursor: cursor.clone(), meta: None };
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

async fn ask<T: DeserializeOwned>(
    peer: &Peer,
    revision: Revision,
    method: &str,
    params: &(impl Encode + ?Sized),
) -> Result<T, ClientError> {
    let params = to_vec(params, revision);
    let call = peer.request(method, TIMEOUT, |out| out.extend_from_slice(&params))?;
    let result = call.await?;
    wire::decode(&result).map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })
}
