//! Session store: sessions that can be restored in another process.

use std::sync::Arc;

use linchpin_jsonrpc::{Message, Outbox, Params};
use linchpin_protocol::Method;
use linchpin_protocol::model::LogLevel;

use super::id::{SessionId, SessionKey};
use super::{HttpSession, SessionGuard, SessionLimitReached};
use crate::server::http::endpoint::Endpoint;
use crate::server::http::requests::post::STANDALONE_MAX_QUEUED_BYTES;
use crate::server::{BoxFuture, Connection, ReplyChannel};

/// MCP session of a client as stored in a [`SessionStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedSession {
    /// Principal that the session belongs to.
    pub principal: Option<String>,
    /// Parameters with which the client opened the session (`initialize`), as JSON text.
    pub initialize: String,
    /// Minimum level of the log messages of the session.
    pub log_level: LogLevel,
    /// URIs of the resources that the session is subscribed to.
    pub subscriptions: Vec<String>,
}

/// Persistent store for HTTP sessions, from which another process can restore them. Without one they are in memory and
/// end with the process.
///
/// An idle session is removed from the process that holds it, but not from the store, since another process may use it.
/// The store should expire its entries after a time to live that [`Self::save`] and [`Self::load`] restart. A client
/// that ends its session ends it in the store and in the process that it is connected to.
pub trait SessionStore: Send + Sync + 'static {
    /// Stores the state of an MCP session and replaces the previous one. Must not block.
    fn save(&self, key: &SessionKey, session: SavedSession);

    /// Returns a stored session.
    fn load(&self, key: &SessionKey) -> BoxFuture<Option<SavedSession>>;

    /// Deletes a session that has ended.
    fn remove(&self, key: &SessionKey);
}

/// Stores a new session in the session store, if there is one.
pub(in crate::server::http) fn save(
    endpoint: &Endpoint,
    id: SessionId,
    principal: Option<&str>,
    params: &Params<'_>,
) {
    let Some(store) = &endpoint.options.store else { return };
    let saved = SavedSession {
        principal: principal.map(str::to_owned),
        initialize: params.text().unwrap_or("{}").to_owned(),
        log_level: LogLevel::Info,
        subscriptions: Vec::new(),
    };
    store.save(&id.key(), saved);
}

/// Stores the changes that a message made to its session in the session store.
pub(in crate::server::http) async fn save_changes(endpoint: &Endpoint, message: &Message<'_>, id: SessionId) {
    let Some(store) = &endpoint.options.store else { return };
    let Message::Request { method, .. } = message else { return };
    let changes = [Method::SetLevel, Method::Subscribe, Method::Unsubscribe];
    if !changes.iter().any(|change| change.name() == *method) {
        return;
    }
    let key = id.key();
    let Some(saved) = store.load(&key).await else { return };
    let Some(session) = endpoint.sessions.peek(&id) else { return };
    session.with_store_lock(|| {
        // Check again under the lock: a session that has ended in the meantime must not be stored again.
        if endpoint.sessions.peek(&id).is_some()
            && let Some(session) = session.connection.session()
        {
            let (log_level, subscriptions) = (session.log_level(), session.subscriptions());
            store.save(&key, SavedSession { log_level, subscriptions, ..saved });
        }
    });
}

/// Ends a session, in this process and in the session store, and deletes its stored events.
pub(in crate::server::http) fn end(endpoint: &Endpoint, id: &SessionId) {
    let key = id.key();
    let end = || {
        // Remove it from the store first: otherwise a concurrent request could restore it.
        endpoint.options.store.iter().for_each(|store| store.remove(&key));
        endpoint.sessions.remove(id);
    };
    match endpoint.sessions.peek(id) {
        Some(session) => session.with_store_lock(end),
        None => end(),
    }
    endpoint.options.events.delete(&key);
}

/// Returns whether the store has this session for this principal.
pub(in crate::server::http) async fn is_stored(
    endpoint: &Endpoint,
    id: &SessionId,
    principal: Option<&str>,
) -> bool {
    let Some(store) = &endpoint.options.store else { return false };
    store.load(&id.key()).await.is_some_and(|saved| saved.principal.as_deref() == principal)
}

/// Restores a session that was opened in another process, or before a restart.
pub(in crate::server::http) async fn restore(
    endpoint: &Arc<Endpoint>,
    id: SessionId,
    principal: Option<&Arc<str>>,
) -> Result<Option<SessionGuard>, SessionLimitReached> {
    let Some(store) = &endpoint.options.store else { return Ok(None) };
    let Some(saved) = store.load(&id.key()).await else { return Ok(None) };
    if saved.principal.as_deref() != principal.map(|principal| &**principal) {
        return Ok(None);
    }
    let service = endpoint.service_for(principal);
    let connection = Connection::new(
        service,
        Arc::new(Outbox::with_capacity(STANDALONE_MAX_QUEUED_BYTES, 0)),
        ReplyChannel::Lasting,
    );
    if connection.restore_session(&saved.initialize, saved.log_level, saved.subscriptions).is_none() {
        return Ok(None);
    }
    let session = HttpSession::new(id.key(), principal.cloned(), connection, SessionId::random_number());
    let (in_use, evicted) = endpoint.sessions.add(id, session)?;
    if let Some(evicted) = evicted {
        endpoint.options.events.delete(&evicted.key);
    }
    endpoint.start_reaper();
    Ok(Some(in_use))
}
