//! What an endpoint is told once and keeps.

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;

use super::super::auth::Resource;
use super::events::{EventStore, Memory};
use super::guard::Guard;
use super::sessions::Bounds;
use super::store::SessionStore;

/// How long a body may take, before it has time for what has come.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Finds out who sends a request.
pub(super) type Identify = Arc<dyn Fn(&Parts) -> Result<Option<String>, Refusal> + Send + Sync>;

/// Why a request is turned away before anything of it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows who sends it: 401.
    Unauthorized,
    /// They may not: 403.
    Forbidden,
}

pub(super) struct Options {
    pub(super) path: String,
    /// Whether clients of the first revision are served, and where besides `path`.
    pub(super) legacy: Option<String>,
    pub(super) guard: Guard,
    /// Whether clients of the session era get sessions.
    pub(super) sessions: bool,
    pub(super) bounds: Bounds,
    pub(super) stream_after: Duration,
    pub(super) keep_alive: Duration,
    pub(super) body_timeout: Duration,
    pub(super) identify: Option<Identify>,
    /// Whom to believe, where tokens say who sends a request.
    pub(super) auth: Option<Arc<Resource>>,
    pub(super) events: Arc<dyn EventStore>,
    pub(super) store: Option<Arc<dyn SessionStore>>,
    pub(super) connections: Connections,
}

/// Bounds of the connections that a listener holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connections {
    pub(super) most: usize,
    pub(super) most_of_one_address: usize,
    pub(super) first_byte: Duration,
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            path: "/mcp".into(),
            legacy: None,
            guard: Guard::default(),
            sessions: true,
            bounds: Bounds { most: 10_000, most_of_one: 100, ttl: Duration::from_mins(30) },
            stream_after: Duration::from_secs(1),
            keep_alive: Duration::from_secs(25),
            body_timeout: BODY_TIMEOUT,
            identify: None,
            auth: None,
            events: Arc::new(Memory::default()),
            store: None,
            connections: Connections::default(),
        }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            most: 16_384,
            most_of_one_address: usize::MAX,
            first_byte: Duration::from_secs(5),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
        }
    }
}
