//! Configuration of an endpoint.

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;

use super::super::auth::Resource;
use super::origin_guard::Guard;
use super::sessions::Bounds;
use super::sessions::store::SessionStore;
use super::streams::event_store::{EventStore, Memory};

/// Default time to receive a body, not counting the time earned by received bytes.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Identifies the principal of a request.
pub(super) type Identify = Arc<dyn Fn(&Parts) -> Result<Option<String>, Refusal> + Send + Sync>;

/// Reason why a request is rejected before it is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The sender is not authenticated: 401.
    Unauthorized,
    /// The sender is not authorized: 403.
    Forbidden,
}

pub(super) struct Options {
    pub(super) path: String,
    /// The additional path for HTTP+SSE clients, if they are served.
    pub(super) legacy: Option<String>,
    pub(super) guard: Guard,
    /// Whether session-era clients get sessions.
    pub(super) sessions: bool,
    pub(super) bounds: Bounds,
    pub(super) stream_after: Duration,
    pub(super) keep_alive: Duration,
    pub(super) body_timeout: Duration,
    pub(super) identify: Option<Identify>,
    /// OAuth token verification, if configured.
    pub(super) auth: Option<Arc<Resource>>,
    pub(super) events: Arc<dyn EventStore>,
    pub(super) store: Option<Arc<dyn SessionStore>>,
    pub(super) connections: Connections,
}

/// Limits of the connections of a listener.
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
