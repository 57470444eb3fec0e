//! Options of the HTTP endpoint of a server: authentication, limits and sessions.

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;

use super::super::auth::ProtectedResource;
use super::origin_guard::OriginGuard;
use super::sessions::SessionLimits;
use super::sessions::store::SessionStore;
use super::streams::event_store::{EventStore, MemoryEventStore};

/// Default time to receive a body, not counting the time earned by received bytes.
pub(super) const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Function of the application that identifies the principal of an HTTP request.
pub(super) type PrincipalResolver =
    Arc<dyn Fn(&Parts) -> Result<Option<String>, PrincipalError> + Send + Sync>;

/// Reason why the principal of a request is not accepted: the sender is not authenticated (401) or not authorized
/// (403).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalError {
    /// The sender is not authenticated: 401.
    Unauthorized,
    /// The sender is not authorized: 403.
    Forbidden,
}

pub(super) struct EndpointOptions {
    pub(super) path: String,
    /// Additional path for HTTP+SSE clients, if they are served.
    pub(super) legacy: Option<String>,
    pub(super) guard: OriginGuard,
    /// Whether session-era clients get sessions.
    pub(super) sessions: bool,
    pub(super) session_limits: SessionLimits,
    pub(super) stream_after: Duration,
    pub(super) keep_alive: Duration,
    pub(super) body_timeout: Duration,
    pub(super) principal_resolver: Option<PrincipalResolver>,
    /// OAuth token verification, if configured.
    pub(super) auth: Option<Arc<ProtectedResource>>,
    pub(super) events: Arc<dyn EventStore>,
    pub(super) store: Option<Arc<dyn SessionStore>>,
    pub(super) connections: ConnectionLimits,
}

/// Limits of the connections of a listener: their number, and timeouts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    pub(super) max: usize,
    pub(super) max_per_address: usize,
    pub(super) first_byte: Duration,
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        EndpointOptions {
            path: "/mcp".into(),
            legacy: None,
            guard: OriginGuard::default(),
            sessions: true,
            session_limits: SessionLimits {
                max: 10_000,
                max_per_principal: 100,
                ttl: Duration::from_mins(30),
            },
            stream_after: Duration::from_secs(1),
            keep_alive: Duration::from_secs(25),
            body_timeout: DEFAULT_BODY_TIMEOUT,
            principal_resolver: None,
            auth: None,
            events: Arc::new(MemoryEventStore::default()),
            store: None,
            connections: ConnectionLimits::default(),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            max: 16_384,
            max_per_address: usize::MAX,
            first_byte: Duration::from_secs(5),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
        }
    }
}
