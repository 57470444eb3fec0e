//! Sessions that outlive a process: what is needed to open one again elsewhere.

use std::sync::Arc;

use linchpin_jsonrpc::{Message, Outbox, Params};
use linchpin_protocol::Method;
use linchpin_protocol::model::LogLevel;

use super::super::{BoxFuture, Connection, Reach};
use super::endpoint::Endpoint;
use super::key::{SessionId, SessionKey};
use super::post::STANDALONE_HIGH_WATER;
use super::sessions::{Full, InUse, Session};

/// What is kept of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedSession {
    /// Whose it is.
    pub principal: Option<String>,
    /// The parameters of its `initialize`, as JSON text.
    pub initialize: String,
    /// The least level of log messages that it wants.
    pub log_level: LogLevel,
    /// The resources that it watches.
    pub subscriptions: Vec<String>,
}

/// Where sessions are kept beyond the process. Without one they live in memory, and end with it.
///
/// A session that nobody uses is let go by the process that has it, and not by the store, since another process may
/// use it: whatever is kept should have a time to live of its own, which begins anew with [`Self::save`] and
/// [`Self::load`]. A client that ends its session ends it in the store and in the process it speaks to.
pub trait SessionStore: Send + Sync + 'static {
    /// Keeps a session, in place of what was kept of it before. It must not block.
    fn save(&self, key: &SessionKey, session: SavedSession);

    /// What was kept of a session.
    fn load(&self, key: &SessionKey) -> BoxFuture<Option<SavedSession>>;

    /// The session is over.
    fn remove(&self, key: &SessionKey);
}

/// Keeps a session that was opened.
pub(super) fn save(endpoint: &Endpoint, id: SessionId, principal: Option<&str>, params: &Params<'_>) {
    let Some(store) = &endpoint.options.store else { return };
    let saved = SavedSession {
        principal: principal.map(str::to_owned),
        initialize: params.text().unwrap_or("{}").to_owned(),
        log_level: LogLevel::Info,
        subscriptions: Vec::new(),
    };
    store.save(&id.key(), saved);
}

/// Keeps what a message has changed in a session.
pub(super) async fn note(endpoint: &Endpoint, message: &Message<'_>, id: SessionId) {
    let Some(store) = &endpoint.options.store else { return };
    let Message::Request { method, .. } = message else { return };
    let changes = [Method::SetLevel, Method::Subscribe, Method::Unsubscribe];
    if !changes.iter().any(|change| change.name() == *method) {
        return;
    }
    let key = id.key();
    let Some(saved) = store.load(&key).await else { return };
    let Some(session) = endpoint.sessions.peek(&id) else { return };
    session.telling(|| {
        // Only now: it may have ended meanwhile, and must not come back.
        if endpoint.sessions.peek(&id).is_some()
            && let Some(session) = session.connection.session()
        {
            let (log_level, subscriptions) = (session.log_level(), session.subscriptions());
            store.save(&key, SavedSession { log_level, subscriptions, ..saved });
        }
    });
}

/// Ends a session, here and where it is kept.
pub(super) fn end(endpoint: &Endpoint, id: &SessionId) {
    let key = id.key();
    let end = || {
        // Before it is gone from here, since it would be opened again from there.
        endpoint.options.store.iter().for_each(|store| store.remove(&key));
        endpoint.sessions.remove(id);
    };
    match endpoint.sessions.peek(id) {
        Some(session) => session.telling(end),
        None => end(),
    }
    endpoint.options.events.forget(&key);
}

/// Whether a session of this principal is kept.
pub(super) async fn knows(endpoint: &Endpoint, id: &SessionId, principal: Option<&str>) -> bool {
    let Some(store) = &endpoint.options.store else { return false };
    store.load(&id.key()).await.is_some_and(|saved| saved.principal.as_deref() == principal)
}

/// Opens a session again that was opened in another process, or before this one was started again.
pub(super) async fn restore(
    endpoint: &Arc<Endpoint>,
    id: SessionId,
    principal: Option<&Arc<str>>,
) -> Result<Option<InUse>, Full> {
    let Some(store) = &endpoint.options.store else { return Ok(None) };
    let Some(saved) = store.load(&id.key()).await else { return Ok(None) };
    if saved.principal.as_deref() != principal.map(|principal| &**principal) {
        return Ok(None);
    }
    let service = endpoint.service_for(principal);
    let connection =
        Connection::new(service, Arc::new(Outbox::polled(STANDALONE_HIGH_WATER, 0)), Reach::Lasting);
    if connection.reopen(&saved.initialize, saved.log_level, saved.subscriptions).is_none() {
        return Ok(None);
    }
    let session = Session::new(id.key(), principal.cloned(), connection, SessionId::some_number());
    let (in_use, gone) = endpoint.sessions.add(id, session)?;
    if let Some(gone) = gone {
        endpoint.options.events.forget(&gone.key);
    }
    endpoint.reap_later();
    Ok(Some(in_use))
}
