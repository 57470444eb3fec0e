//! A server that the hub connects to, and what may stand in its fields.
//!
//! A [`Draft`] is what people send by REST or write in a form. It has no command: those come from the operator's file
//! alone, as an [`Operated`] server with a [`Launch`].

mod draft;
mod operated;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::Revision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Digesting};
use crate::id::ServerId;
use crate::names::Slug;

pub(crate) use draft::{AT_ONCE, RATES};
pub use draft::{Draft, TIMEOUTS};
pub use operated::Operated;

/// A server as the hub knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its short name, which never changes.
    pub slug: Slug,
    /// What can be changed.
    pub settings: Settings,
    /// How it is reached.
    pub transport: Transport,
    /// Whether the operator's file says that it is there: then only that file changes it.
    pub is_from_file: bool,
    /// Whether the configuration file does not declare it any more: it is disabled until the file does, or it is removed.
    pub has_left_file: bool,
    /// Counts the changes.
    pub version: u64,
    /// When it was added.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
}

/// What can be said of any server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// How requests say who asks.
    pub authentication: Authentication,
    /// Whose credentials are used.
    pub credentials: CredentialMode,
    /// How long an answer may take.
    #[serde(rename = "timeout_ms", with = "millis")]
    pub timeout: Duration,
    /// How often connecting, listing and reading is tried again; calls never are.
    pub retry_attempts: u8,
    /// Whether it is used at all.
    pub enabled: bool,
    /// Whether arguments and results of its calls are kept.
    pub keep_history: bool,
    /// How many calls, reads and prompts a minute may bring; as many as there are without it.
    pub calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once.
    #[serde(default)]
    pub calls_at_once: Option<u32>,
    /// Protocol revision of its connections. Default: the newest that both sides support.
    #[serde(default)]
    pub revision: Option<Revision>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program on this machine.
    Stdio(Launch),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP+SSE.
    Sse(Remote),
}

/// A place on the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Where it is.
    pub url: String,
    /// What is sent with every request. Nothing here is secret.
    pub headers: BTreeMap<String, String>,
}

/// What every program needs of the hub's environment. Nothing here is secret.
pub const NEEDED: [&str; 13] = [
    "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMPDIR",
    "TZ", "USER",
];

/// A program to start. Nothing that comes over the network is ever made into one.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment, but for the secrets.
    pub env: BTreeMap<String, String>,
    /// Variables of its environment whose values are those of the hub's own.
    pub inherited: BTreeSet<String>,
    /// Variables of its environment whose values are in the vault.
    pub secrets: BTreeSet<String>,
    /// Where it runs.
    pub directory: Option<String>,
}

/// How requests say who asks. The secret itself is in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Authentication {
    /// They do not.
    None,
    /// A bearer token.
    Bearer,
    /// A key in a header.
    ApiKey {
        /// The header.
        header: String,
    },
    /// A user name and a password.
    Basic {
        /// The user name.
        username: String,
    },
    /// Somebody signs in, with OAuth.
    #[serde(rename = "oauth")]
    OAuth {
        /// The id of the hub at the authorization server, where it is registered there already. Its secret, if it has
        /// one, is the credential of the server.
        #[serde(default)]
        client_id: Option<String>,
        /// What is asked for; what the server names, when nothing is said.
        #[serde(default)]
        scopes: Vec<String>,
        /// The authorization server at which the hub is registered.
        #[serde(default)]
        issuer: Option<String>,
    },
}

/// Whose credentials are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialMode {
    /// The same for everybody.
    Shared,
    /// Each agent has its own.
    PerAgent,
}

/// Times in milliseconds.
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
    /// How it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Stdio(_) => "stdio",
            Transport::Http(_) => "http",
            Transport::Sse(_) => "sse",
        }
    }

    /// How it is started, if it is a program.
    pub fn launch(self) -> Option<Launch> {
        match self {
            Transport::Stdio(launch) => Some(launch),
            Transport::Http(_) | Transport::Sse(_) => None,
        }
    }

    /// The place on the network, if it is one.
    pub fn place(&self) -> Option<&Remote> {
        match self {
            Transport::Stdio(_) => None,
            Transport::Http(remote) | Transport::Sse(remote) => Some(remote),
        }
    }
}

impl Launch {
    /// A program with arguments, and with nothing in its environment.
    pub fn new(command: impl Into<String>, args: &[&str]) -> Self {
        Launch {
            command: command.into(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: BTreeMap::new(),
            inherited: BTreeSet::new(),
            secrets: BTreeSet::new(),
            directory: None,
        }
    }

    /// Which program it is, whatever its environment: what secrets are entered for.
    pub(crate) fn program(&self) -> Digest {
        let begin = Digest::of("linchpin program").part(&self.command);
        let begin = begin.part(self.directory.as_deref().unwrap_or_default());
        self.args.iter().fold(begin, Digesting::part).end()
    }
}

/// Without the values of the environment, which may be secret.
impl fmt::Debug for Launch {
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
