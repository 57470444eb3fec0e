//! Session registry of an endpoint: sessions are found by id and principal, limited in number, and removed when idle.

pub(super) mod id;
pub(super) mod store;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin_protocol::version::Feature;
use tokio::time::Instant;

use self::id::{SessionId, SessionKey};
use super::super::Connection;
use super::streams::event_store::EventStore;
use super::streams::{STANDALONE, SessionStream, StreamRetention};
use crate::lock::lock;

/// Maximum number of streams of one session that may wait for resumption.
const MAX_STREAMS: usize = 256;

/// MCP session of one client over HTTP.
pub(super) struct HttpSession {
    pub(super) key: SessionKey,
    pub(super) principal: Option<Arc<str>>,
    pub(super) connection: Arc<Connection>,
    /// Streams of the session: the standalone stream and the streams of requests.
    streams: Mutex<Vec<Arc<SessionStream>>>,
    /// Lock held during updates of the session store, so that the last change is stored last.
    store_lock: Mutex<()>,
    /// Offset of the numbers of streams and events; no other process has used numbers from here on.
    number_offset: u32,
    next_stream: AtomicU32,
    /// When the session was last used, in microseconds of the registry's clock.
    last_used: AtomicU64,
    /// Number of requests and streams that use the session, plus the flag [`NOT_IN_IDLE_ORDER`].
    users: AtomicUsize,
}

/// Flag of a session in use that is not in [`SessionTable::idle_order`]: the last user puts it back.
const NOT_IN_IDLE_ORDER: usize = 1 << (usize::BITS - 1);

impl HttpSession {
    pub(super) fn new(
        key: SessionKey,
        principal: Option<Arc<str>>,
        connection: Arc<Connection>,
        first: u32,
    ) -> Arc<Self> {
        Arc::new(HttpSession {
            key,
            principal,
            connection,
            streams: Mutex::default(),
            store_lock: Mutex::default(),
            number_offset: first,
            next_stream: AtomicU32::new(first.saturating_add(1)),
            last_used: AtomicU64::new(0),
            users: AtomicUsize::new(0),
        })
    }

    /// Returns the number for a new SSE stream of the session.
    pub(super) fn next_stream(&self) -> u32 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the event number before the first event of the standalone stream.
    pub(super) fn first_event(&self) -> u64 {
        u64::from(self.number_offset) << 32
    }

    /// Returns whether streams start with an event from which clients can resume.
    pub(super) fn is_primed(&self) -> bool {
        self.connection.session().is_some_and(|session| session.revision().has(Feature::PrimedStreams))
    }

    /// Returns the store settings with which the events of the session's streams are saved for resumption.
    pub(super) fn retention(&self, store: &Arc<dyn EventStore>) -> StreamRetention {
        StreamRetention { store: store.clone(), session: self.key, is_primed: self.is_primed() }
    }

    /// Adds a stream, so that its client can resume it.
    pub(super) fn add_stream(&self, stream: Arc<SessionStream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| !stream.is_done());
        if streams.len() >= MAX_STREAMS
            && let Some(oldest) =
                streams.iter().position(|stream| stream.number() != STANDALONE && !stream.is_attached())
        {
            streams.remove(oldest).close();
        }
        streams.push(stream);
    }

    pub(super) fn stream(&self, number: u32) -> Option<Arc<SessionStream>> {
        lock(&self.streams).iter().find(|stream| stream.number() == number).cloned()
    }

    /// Returns the standalone SSE stream of the session; creates it on first use.
    pub(super) fn standalone_stream(&self, make: impl FnOnce() -> Arc<SessionStream>) -> Arc<SessionStream> {
        let mut streams = lock(&self.streams);
        if let Some(stream) = streams.iter().find(|stream| stream.number() == STANDALONE) {
            return stream.clone();
        }
        let stream = make();
        streams.push(stream.clone());
        stream
    }

    /// Runs an update of the session store, serialized with other updates of this session.
    pub(super) fn with_store_lock<T>(&self, update_store: impl FnOnce() -> T) -> T {
        let _saving = lock(&self.store_lock);
        update_store()
    }

    /// Returns when the session became idle; `None` while it is in use.
    fn idle_since(&self) -> Option<u64> {
        let is_idle = self.users.load(Ordering::Acquire) & !NOT_IN_IDLE_ORDER == 0;
        is_idle.then(|| self.last_used.load(Ordering::Relaxed))
    }

    /// Marks the session as absent from the idle order ([`NOT_IN_IDLE_ORDER`]) if it is in use; returns whether it is.
    fn unlist(&self) -> bool {
        let unlisted = |users| (users > 0).then_some(users | NOT_IN_IDLE_ORDER);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, unlisted).is_ok()
    }

    /// Cancels all work of the session and closes its streams.
    fn end(&self) {
        self.connection.abandon();
        lock(&self.streams).drain(..).for_each(|stream| stream.close());
    }
}

/// Guard of a session in use: until it is dropped, the session does not count as idle.
pub(super) struct SessionGuard {
    id: SessionId,
    session: Arc<HttpSession>,
    clock_start: Instant,
    table: Arc<Mutex<SessionTable>>,
}

impl SessionGuard {
    pub(super) fn session(&self) -> &Arc<HttpSession> {
        &self.session
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let now = elapsed_micros(self.clock_start);
        self.session.last_used.store(now, Ordering::Relaxed);
        if self.session.users.fetch_sub(1, Ordering::AcqRel) == NOT_IN_IDLE_ORDER + 1 {
            let mut table = lock(&self.table);
            // Another user may have come, gone and relisted it concurrently.
            let is_unlisted =
                self.session.users.fetch_and(!NOT_IN_IDLE_ORDER, Ordering::AcqRel) & NOT_IN_IDLE_ORDER != 0;
            if is_unlisted && table.by_id.contains_key(&self.id) {
                table.idle_order.push(Reverse((now, self.id)));
            }
        }
    }
}

/// Limits of the sessions of an endpoint: their number, the number per principal, and the idle time.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    pub(super) max: usize,
    pub(super) max_per_principal: usize,
    pub(super) ttl: Duration,
}

/// Which limit prevents a new session: that of the principal, or that of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionLimitReached {
    /// The principal has reached its limit, and all its sessions are in use.
    Principal,
    /// The limit of all sessions is reached, and all are in use.
    Server,
}

/// All sessions of an HTTP endpoint, found by id.
pub(super) struct SessionRegistry {
    table: Arc<Mutex<SessionTable>>,
    limits: SessionLimits,
    clock_start: Instant,
}

#[derive(Default)]
struct SessionTable {
    by_id: HashMap<SessionId, Arc<HttpSession>>,
    /// Sessions by the time since which they are idle, as last observed: never later than the real one. Sessions found
    /// in use are removed until they are idle, so that they are not checked again.
    idle_order: BinaryHeap<Reverse<(u64, SessionId)>>,
    /// Ids of the sessions of each principal.
    by_principal: HashMap<Arc<str>, Vec<SessionId>>,
}

/// Returns the microseconds since `started`.
fn elapsed_micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl SessionTable {
    fn remove(&mut self, id: &SessionId) -> Option<Arc<HttpSession>> {
        let session = self.by_id.remove(id)?;
        if let Some(principal) = &session.principal
            && let Some(principal_sessions) = self.by_principal.get_mut(principal)
        {
            principal_sessions.retain(|other| other != id);
            if principal_sessions.is_empty() {
                self.by_principal.remove(principal);
            }
        }
        if self.by_id.is_empty() {
            *self = SessionTable::default(); // releases the memory, too
        } else if self.idle_order.len() > 64 && self.idle_order.len() > 2 * self.by_id.len() {
            self.idle_order.retain(|Reverse((_, id))| self.by_id.contains_key(id));
            self.idle_order.shrink_to_fit();
            self.by_id.shrink_to(2 * self.by_id.len());
        }
        Some(session)
    }

    /// Removes the session that is idle for longest.
    fn evict(&mut self) -> Option<Arc<HttpSession>> {
        loop {
            let Reverse((last_used, id)) = self.idle_order.pop()?;
            let Some(session) = self.by_id.get(&id) else { continue };
            if session.unlist() {
                continue;
            }
            // It stays idle: no request can find it while the table is locked.
            let idle_since = session.last_used.load(Ordering::Relaxed);
            if idle_since == last_used {
                return self.remove(&id);
            }
            self.idle_order.push(Reverse((idle_since, id)));
        }
    }

    /// Removes the session of this principal that is idle for longest.
    fn evict_idle_of_principal(&mut self, principal: &str) -> Option<Arc<HttpSession>> {
        let principal_sessions = self.by_principal.get(principal)?.iter();
        let idle = principal_sessions.filter_map(|id| Some((self.by_id.get(id)?.idle_since()?, *id)));
        let (_, oldest) = idle.min()?;
        self.remove(&oldest)
    }
}

impl SessionRegistry {
    pub(super) fn new(limits: SessionLimits) -> Self {
        SessionRegistry { table: Arc::default(), limits, clock_start: Instant::now() }
    }

    fn now(&self) -> u64 {
        elapsed_micros(self.clock_start)
    }

    /// Returns a session without marking it as used.
    pub(super) fn peek(&self, id: &SessionId) -> Option<Arc<HttpSession>> {
        lock(&self.table).by_id.get(id).cloned()
    }

    fn guard(&self, id: SessionId, session: &Arc<HttpSession>) -> SessionGuard {
        session.users.fetch_add(1, Ordering::Acquire);
        SessionGuard {
            id,
            session: session.clone(),
            clock_start: self.clock_start,
            table: self.table.clone(),
        }
    }

    /// Adds a session unless it exists. At the limit, evicts the session that is idle for longest: one of the same
    /// principal if that has reached its own limit.
    pub(super) fn add(
        &self,
        id: SessionId,
        session: Arc<HttpSession>,
    ) -> Result<(SessionGuard, Option<Arc<HttpSession>>), SessionLimitReached> {
        let now = self.now();
        session.last_used.store(now, Ordering::Relaxed);
        let mut table = lock(&self.table);
        if let Some(existing) = table.by_id.get(&id) {
            return Ok((self.guard(id, existing), None));
        }
        let mut evicted = None;
        if let Some(principal) = &session.principal
            && table
                .by_principal
                .get(principal)
                .is_some_and(|principal_sessions| principal_sessions.len() >= self.limits.max_per_principal)
        {
            evicted = Some(table.evict_idle_of_principal(principal).ok_or(SessionLimitReached::Principal)?);
        }
        if table.by_id.len() >= self.limits.max {
            evicted = Some(table.evict().ok_or(SessionLimitReached::Server)?);
        }
        if let Some(principal) = &session.principal {
            table.by_principal.entry(principal.clone()).or_default().push(id);
        }
        let in_use = self.guard(id, &session);
        table.idle_order.push(Reverse((now, id)));
        table.by_id.insert(id, session);
        drop(table);
        if let Some(evicted) = &evicted {
            evicted.end();
        }
        Ok((in_use, evicted))
    }

    /// Returns the session with this id and marks it as used, if it belongs to this principal. Unknown sessions and
    /// those of others are indistinguishable.
    pub(super) fn find(&self, id: &SessionId, principal: Option<&str>) -> Option<SessionGuard> {
        let table = lock(&self.table);
        let session = table.by_id.get(id).filter(|session| session.principal.as_deref() == principal)?;
        Some(self.guard(*id, session))
    }

    /// Ends a session, and removes it from the registry.
    pub(super) fn remove(&self, id: &SessionId) -> Option<Arc<HttpSession>> {
        let session = lock(&self.table).remove(id)?;
        session.end();
        Some(session)
    }

    /// Ends the sessions that have been idle for too long.
    pub(super) fn reap(&self) -> Vec<Arc<HttpSession>> {
        let ttl = u64::try_from(self.limits.ttl.as_micros()).unwrap_or(u64::MAX);
        let oldest = self.now().saturating_sub(ttl);
        let stale = |session: &HttpSession| session.idle_since().is_some_and(|since| since < oldest);
        let mut table = lock(&self.table);
        let ids: Vec<_> =
            table.by_id.iter().filter(|(_, session)| stale(session)).map(|(id, _)| *id).collect();
        let expired: Vec<_> = ids.iter().filter_map(|id| table.remove(id)).collect();
        drop(table);
        for session in &expired {
            session.end();
        }
        expired
    }

    /// Ends all sessions.
    pub(super) fn end_all(&self) -> Vec<Arc<HttpSession>> {
        let ended: Vec<_> = std::mem::take(&mut *lock(&self.table)).by_id.into_values().collect();
        for session in &ended {
            session.end();
        }
        ended
    }

    /// Closes the streams of all sessions, for shutdown.
    pub(super) fn close_streams(&self) {
        let sessions: Vec<_> = lock(&self.table).by_id.values().cloned().collect();
        for session in sessions {
            session.connection.close_peer("the server is shutting down");
            session.stream(STANDALONE).into_iter().for_each(|stream| stream.close());
        }
    }
}

#[cfg(test)]
mod tests {
    use linchpin_jsonrpc::Outbox;

    use super::super::super::ReplyChannel;
    use super::*;
    use crate::Server;

    const MAX_SESSIONS: usize = 100;

    /// Adds a session; returns its id and the evicted session.
    fn add(
        sessions: &SessionRegistry,
    ) -> Result<(SessionId, SessionGuard, Option<SessionKey>), SessionLimitReached> {
        let (id, service) = (SessionId::random(), Server::new("test", "1").build().unwrap());
        let connection =
            Connection::new(service, Arc::new(Outbox::with_capacity(1, 0)), ReplyChannel::Lasting);
        let (in_use, evicted) = sessions.add(id, HttpSession::new(id.key(), None, connection, 0))?;
        Ok((id, in_use, evicted.map(|evicted| evicted.key)))
    }

    fn full() -> (SessionRegistry, Vec<(SessionId, SessionGuard)>) {
        let bounds = SessionLimits { max: MAX_SESSIONS, max_per_principal: MAX_SESSIONS, ttl: Duration::MAX };
        let sessions = SessionRegistry::new(bounds);
        let entries =
            (0..MAX_SESSIONS).map(|_| add(&sessions).map(|(id, in_use, _)| (id, in_use)).ok().unwrap());
        let entries = entries.collect();
        (sessions, entries)
    }

    #[tokio::test]
    async fn sessions_in_use_are_not_looked_at_again() {
        let (sessions, mut entries) = full();
        assert_eq!(add(&sessions).err(), Some(SessionLimitReached::Server));
        assert!(lock(&sessions.table).idle_order.is_empty(), "a flood would check all of them each time");
        // An idle session is evicted next; the new one takes its slot.
        let (id, in_use) = entries.remove(MAX_SESSIONS / 2);
        drop(in_use);
        let (_, _newest, evicted) = add(&sessions).unwrap();
        assert!(evicted == Some(id.key()));
        assert_eq!(add(&sessions).err(), Some(SessionLimitReached::Server));
    }

    #[tokio::test]
    async fn a_session_is_listed_once_however_often_it_is_used() {
        let (sessions, mut entries) = full();
        let (id, in_use) = entries.remove(0);
        for _ in 0..3 {
            assert_eq!(add(&sessions).err(), Some(SessionLimitReached::Server));
        }
        let second = sessions.find(&id, None).unwrap();
        drop(in_use);
        assert!(lock(&sessions.table).idle_order.is_empty(), "it is still in use");
        drop(second);
        drop(sessions.find(&id, None));
        assert_eq!(lock(&sessions.table).idle_order.len(), 1);
        // A session that was ended while in use is not relisted.
        let (id, in_use) = entries.remove(0);
        sessions.remove(&id);
        drop(in_use);
        assert_eq!(lock(&sessions.table).idle_order.len(), 1);
    }
}
