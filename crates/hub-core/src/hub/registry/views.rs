//! Views of servers for REST and the CLI, and the filter of their list.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connection::ConnectionStatus;
use crate::hub::upstream::features::OfferedFeatures;
use crate::hub::upstream::server_info::ServerInfo;
use crate::id::ServerId;
use crate::server::{Authentication, ConnectionLimits, CredentialMode};
use crate::tool::SkippedTool;

/// Server of the hub as shown to users, with its connection status.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the REST API")]
pub struct ServerView {
    /// Id of the server.
    #[schemars(with = "String")]
    pub id: ServerId,
    /// Slug of the server: its unique short name in commands and tool names. It cannot be changed.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Transport to the server: `stdio`, `http` or `sse`.
    pub transport: &'static str,
    /// URL of the server, if it is remote.
    pub url: Option<String>,
    /// Headers sent with every request.
    pub headers: BTreeMap<String, String>,
    /// Command and arguments of a stdio server.
    pub command: Option<Vec<String>>,
    /// Names of the environment variables of the server.
    pub env: Vec<String>,
    /// Names of the environment variables whose values are in the vault.
    pub secrets: Vec<String>,
    /// Environment secrets that are missing or were stored for another command. The server cannot start without them.
    pub missing_secrets: Vec<String>,
    /// Whether the configuration file declares the server. It can then be changed only there.
    pub is_configured: bool,
    /// Whether the configuration file no longer declares the server. It is disabled until it is declared again or
    /// removed.
    pub is_undeclared: bool,
    /// Authentication of requests to the server.
    pub authentication: Authentication,
    /// Whether credentials are shared or per agent.
    pub credentials: CredentialMode,
    /// Timeout of requests to the server, in milliseconds.
    pub timeout_ms: u64,
    /// Number of retries when connecting, listing and reading.
    pub retry_attempts: u8,
    /// Rate limit in calls per minute.
    pub calls_per_minute: Option<u32>,
    /// Maximum number of concurrent calls.
    pub max_concurrent_calls: Option<u32>,
    /// Pinned protocol revision, if any.
    pub revision: Option<&'static str>,
    /// Limits of the connections to the server.
    #[serde(flatten)]
    pub limits: ConnectionLimits,
    /// Whether the server is enabled.
    pub enabled: bool,
    /// Whether arguments and results of the server's calls remain stored after the calls have finished.
    pub keep_history: bool,
    /// Status of the connections to the server, or `disabled`.
    pub status: ConnectionStatus,
    /// Error of the last sync, unless the server was changed since. The known tools are those of an earlier sync.
    pub error: Option<String>,
    /// Time at which the hub last reached the server.
    #[schemars(with = "Option<String>")]
    pub last_connected: Option<Timestamp>,
    /// Time of the last update of the tools from the server.
    #[schemars(with = "Option<String>")]
    pub last_synced: Option<Timestamp>,
    /// What the server reported of itself at its last sync.
    pub info: Option<ServerInfo>,
    /// Number of tools of the server.
    pub tools: usize,
    /// Number of resources of the server. Absent until they were listed.
    pub resources: Option<usize>,
    /// Number of resource templates of the server. Absent until they were listed.
    pub resource_templates: Option<usize>,
    /// Number of prompts of the server. Absent until they were listed.
    pub prompts: Option<usize>,
    /// Tools that the last sync has skipped, with the reasons. At most 100.
    pub skipped: Vec<SkippedTool>,
    /// Version of the server, incremented by each change.
    pub version: u64,
    /// Time at which the server was added.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time of the last change of the server.
    #[schemars(with = "String")]
    pub updated: Timestamp,
}

/// Server after a connection to it, with the names of what it offers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectReport {
    /// Server with its new status and counts.
    #[serde(flatten)]
    pub server: ServerView,
    /// Names of what the server offers.
    pub offers: ServerOffers,
}

/// Names of what a server offers.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ServerOffers {
    /// Names of the tools of the server.
    pub tools: Vec<String>,
    /// Names of everything else.
    #[serde(flatten)]
    pub features: OfferedFeatures,
}

/// Criteria that select servers when they are listed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerFilter {
    /// Lists only enabled or only disabled servers.
    pub enabled: Option<bool>,
    /// Only servers with this connection status.
    pub status: Option<ConnectionStatus>,
    /// Only servers with this text in their name, slug or description.
    pub q: Option<String>,
}
