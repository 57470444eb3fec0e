//! `_meta`: metadata of requests, results and notifications.

use linchpin_jsonrpc::Id;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ClientCapabilities, Implementation, LogLevel};
use crate::encode::{Encode, Encoder, model};

/// Metadata of a message: the object `_meta`. Keys have a prefix unless the protocol reserves them.
pub type Meta = Map<String, Value>;

/// Keys reserved by the protocol.
pub mod key {
    /// Key in `_meta` of the protocol version of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Key in `_meta` of the name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Key in `_meta` of the capabilities of the client.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Key in `_meta` of the minimum level of log messages for a request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Key of the subscription that a notification belongs to, in `_meta`.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Key in `_meta` of the name and version of the server.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Key of the task that a message belongs to, in `_meta` (core tasks).
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// Key of the token that requests progress notifications, in `_meta`.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// Reserved members of the `_meta` of a request. Other members are ignored.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct RequestMeta {
    /// Token for the progress notifications of the request.
    #[serde(rename = "progressToken", default)]
    pub progress_token: Option<Id<'static>>,
    /// Protocol version of the request (stateless era).
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", default)]
    pub protocol_version: Option<String>,
    /// Identity of the client (stateless era).
    #[serde(rename = "io.modelcontextprotocol/clientInfo", default)]
    pub client_info: Option<Implementation>,
    /// Capabilities of the client (stateless era).
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities", default)]
    pub client_capabilities: Option<ClientCapabilities>,
    /// Minimum level of log messages (stateless era).
    #[serde(rename = "io.modelcontextprotocol/logLevel", default)]
    pub log_level: Option<LogLevel>,
}

model! {
    /// Parameters of a request or notification that has none except metadata.
    #[derive(Default)]
    pub struct EmptyParams {
        /// Metadata of the request or notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

impl Encode for Id<'_> {
    fn encode(&self, to: &mut Encoder<'_>) {
        self.write(to.out);
    }
}
