//! `_meta`: metadata of requests, results and notifications.

use linchpin_jsonrpc::Id;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ClientCapabilities, Implementation, LogLevel};
use crate::encode::{Encode, Encoder, model};

/// Metadata: a map whose keys carry a prefix unless the protocol reserves them.
pub type Meta = Map<String, Value>;

/// The keys that the protocol reserves.
pub mod key {
    /// The revision of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Who sends a request.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the sender of a request can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least level of log messages wanted for a request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The subscription that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Who sends a result.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The task that a message belongs to (tasks in the core).
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// Asks for progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// The reserved members of a request's `_meta`; others are ignored here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct RequestMeta {
    /// The token that progress notifications must carry.
    #[serde(rename = "progressToken", default)]
    pub progress_token: Option<Id<'static>>,
    /// The revision of this request (stateless era).
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", default)]
    pub protocol_version: Option<String>,
    /// Who sends it (stateless era).
    #[serde(rename = "io.modelcontextprotocol/clientInfo", default)]
    pub client_info: Option<Implementation>,
    /// What the sender can do (stateless era).
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities", default)]
    pub client_capabilities: Option<ClientCapabilities>,
    /// The least level of log messages wanted (stateless era).
    #[serde(rename = "io.modelcontextprotocol/logLevel", default)]
    pub log_level: Option<LogLevel>,
}

model! {
    /// Parameters that hold nothing but metadata.
    #[derive(Default)]
    pub struct EmptyParams {
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

impl Encode for Id<'_> {
    fn encode(&self, to: &mut Encoder<'_>) {
        self.write(to.out);
    }
}
