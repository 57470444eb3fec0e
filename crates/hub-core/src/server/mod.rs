//! Upstream servers and the validation of their settings.
//!
//! A [`ServerDraft`] comes from REST or a form and has no command: stdio servers come only from the configuration file, as a
//! [`ConfiguredServer`] with a [`ProgramSpec`].

mod configured;
mod draft;
mod limits;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::Revision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, DigestBuilder};
use crate::id::ServerId;
use crate::tool::names::Slug;

pub use configured::ConfiguredServer;
pub(crate) use draft::{CONCURRENCY_RANGE, RATE_RANGE};
pub use draft::{ServerDraft, TIMEOUT_RANGE_MS};
pub use limits::{
    ConnectionLimits, MAX_CALL_RANGE_MS, MAX_RESPONSE_RANGE, OPEN_TIMEOUT_RANGE_MS, READ_TIMEOUT_RANGE_MS,
    RECONNECTS_RANGE, SYNC_INTERVAL_RANGE_MS,
};

/// Upstream server of the hub: slug, settings and transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Id of the server.
    pub id: ServerId,
    /// Slug of the server, which is immutable.
    pub slug: Slug,
    /// Settings of the server, which users can change.
    pub settings: ServerSettings,
    /// Transport to the server, with its command or URL.
    pub transport: Transport,
    /// Whether the configuration file declares the server: then only that file changes it.
    pub is_configured: bool,
    /// Whether the configuration file does not declare the server any more. It is disabled until the file declares it
    /// again, or it is removed.
    pub is_undeclared: bool,
    /// Version of the server, increased by each change.
    pub version: u64,
    /// Time at which the server was added.
    pub created: Timestamp,
    /// Time of the last change of the server.
    pub updated: Timestamp,
}

/// Settings that stdio and remote servers have in common, such as name, authentication and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Display name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// How requests to the server are authenticated.
    pub authentication: Authentication,
    /// Whether all agents share one credential or each has its own.
    pub credentials: CredentialMode,
    /// Timeout of requests to the server. Default: 30 s.
    #[serde(rename = "timeout_ms", with = "millis")]
    pub timeout: Duration,
    /// Maximum number of retries of connecting, listing and reading; calls are never retried. Default: 3.
    pub retry_attempts: u8,
    /// Whether the server is enabled.
    pub enabled: bool,
    /// Whether arguments and results of the server's calls remain stored after the calls have finished.
    pub keep_history: bool,
    /// Rate limit: calls, reads and prompts per minute. Default: unlimited.
    pub calls_per_minute: Option<u32>,
    /// Concurrency limit: calls in flight. Default: unlimited.
    #[serde(default, alias = "calls_at_once")]
    pub max_concurrent_calls: Option<u32>,
    /// Protocol revision of the connections to the server. Default: the newest that both sides support.
    #[serde(default)]
    pub revision: Option<Revision>,
    /// Limits of the connections to the server.
    #[serde(flatten)]
    pub limits: ConnectionLimits,
}

/// Transport to a server: a child process, or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Process on this machine, over standard input and output.
    Stdio(ProgramSpec),
    /// Remote server over Streamable HTTP.
    Http(RemoteEndpoint),
    /// HTTP+SSE, the predecessor of Streamable HTTP.
    Sse(RemoteEndpoint),
}

/// URL and fixed headers of a remote server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteEndpoint {
    /// URL of the MCP endpoint.
    pub url: String,
    /// Headers of every request. They contain no secrets.
    pub headers: BTreeMap<String, String>,
}

/// Variables of the hub's environment that every stdio server receives. None of them is secret.
pub const BASE_ENV_VARS: [&str; 13] = [
    "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMPDIR",
    "TZ", "USER",
];

/// Program that a stdio server runs: command, arguments, environment and directory. It never comes from the network.
#[derive(Clone, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Command that starts the server.
    pub command: String,
    /// Arguments of the command.
    pub args: Vec<String>,
    /// Complete environment, except for the secrets.
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values come from the hub's own environment.
    pub inherited: BTreeSet<String>,
    /// Environment variables whose values are stored in the vault.
    pub secrets: BTreeSet<String>,
    /// Working directory of the server process.
    pub directory: Option<String>,
}

/// How the hub authenticates its requests to a server: not at all, or by bearer token, API key, HTTP Basic or OAuth.
/// The secret itself is in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Authentication {
    /// No authentication.
    None,
    /// Bearer token.
    Bearer,
    /// API key in a header.
    ApiKey {
        /// Name of the header that carries the API key.
        header: String,
    },
    /// User name and password (HTTP Basic).
    Basic {
        /// User name for HTTP Basic authentication.
        username: String,
    },
    /// OAuth: a user signs in to the server.
    #[serde(rename = "oauth")]
    OAuth {
        /// Client id of the hub, if it is preregistered at the authorization server. The client secret, if there is
        /// one, is the credential of the server.
        #[serde(default)]
        client_id: Option<String>,
        /// OAuth scopes to request for this server. Default: the scopes that the server names.
        #[serde(default)]
        scopes: Vec<String>,
        /// Issuer of the authorization server at which the hub is registered.
        #[serde(default)]
        issuer: Option<String>,
    },
}

/// Whether all callers share one credential for a server, or each agent has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialMode {
    /// One credential for all callers.
    Shared,
    /// One credential per agent.
    PerAgent,
}

/// Serialization of durations in milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

impl Transport {
    /// Returns the name of the transport: `stdio`, `http` or `sse`.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Stdio(_) => "stdio",
            Transport::Http(_) => "http",
            Transport::Sse(_) => "sse",
        }
    }

    /// Returns the command that starts the server, if it is a stdio server.
    pub fn into_program(self) -> Option<ProgramSpec> {
        match self {
            Transport::Stdio(program) => Some(program),
            Transport::Http(_) | Transport::Sse(_) => None,
        }
    }

    /// Returns URL and headers, if the server is remote.
    pub fn remote(&self) -> Option<&RemoteEndpoint> {
        match self {
            Transport::Stdio(_) => None,
            Transport::Http(remote) | Transport::Sse(remote) => Some(remote),
        }
    }
}

impl ProgramSpec {
    /// Creates a program with arguments and an empty environment.
    pub fn new(command: impl Into<String>, args: &[&str]) -> Self {
        ProgramSpec {
            command: command.into(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: BTreeMap::new(),
            inherited: BTreeSet::new(),
            secrets: BTreeSet::new(),
            directory: None,
        }
    }

    /// Returns the digest of command, arguments and directory, without the environment. Secrets are bound to it.
    pub(crate) fn program_digest(&self) -> Digest {
        let digest = Digest::of("linchpin program").part(&self.command);
        let digest = digest.part(self.directory.as_deref().unwrap_or_default());
        self.args.iter().fold(digest, DigestBuilder::part).finish()
    }
}

/// Omits the values of the environment, which may be secret.
impl fmt::Debug for ProgramSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &self.env.keys())
            .field("inherited", &self.inherited)
            .field("secrets", &self.secrets)
            .field("directory", &self.directory)
            .finish()
    }
}
