//! Closing of pooled connections: those of a server or subject, outdated ones, or all. A connection is closed
//! gracefully when its last call has finished; the connection of a stdio server that is disabled or removed is also
//! closed while calls run.

use std::sync::Arc;
use std::time::Duration;

use super::{ConnectionKey, ConnectionPool, ConnectionStatus, MAX_USERS, Slot, Slots};
use crate::actor::Subject;
use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Time that all connections have to close when the hub shuts down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that calls have to finish when their stdio server is disabled or removed. The process then has 1.8 s to exit,
/// so that all its processes are gone two seconds after the command.
const CALL_GRACE: Duration = Duration::from_millis(200);

impl Slot {
    /// Closes the connection when no call uses it any more, or after the time limit. Calls that are running then have
    /// the outcome `unknown`.
    async fn close(self: Arc<Self>, limit: Option<Duration>) {
        self.closing.close();
        let all = self.users.acquire_many(MAX_USERS);
        let _all = match limit {
            Some(limit) => tokio::time::timeout(limit, all).await.ok(),
            None => Some(all.await),
        };
        self.force_close.close();
        let client = self.state.lock().await.client.take();
        if let Some(client) = client {
            client.close().await;
        }
    }
}

impl ConnectionPool {
    /// Closes all connections and waits for that, for at most 5 s.
    pub async fn close_all(&self) {
        self.close_where(|_, _| true);
        self.closing.shutdown(CLOSE_TIMEOUT).await;
    }

    /// Closes all connections to a server.
    pub fn close_server(&self, tenant: TenantId, server: ServerId) {
        self.close_where(|key, _| key.tenant == tenant && key.server == server);
    }

    /// Closes all connections to a server that were opened before this version; `None` if the server was removed. If
    /// `is_stopped`, the server must not be used any more, and the connection of a stdio server does not wait for its
    /// calls.
    pub fn invalidate(&self, tenant: TenantId, server: ServerId, version: Option<u64>, is_stopped: bool) {
        let mut slots = lock(&self.slots);
        lock(&self.newest_versions).insert((tenant, server), version.unwrap_or(u64::MAX));
        self.remove(&mut slots, is_stopped, |key, _| key.tenant == tenant && key.server == server);
    }

    /// Closes all connections of a subject.
    pub fn close_subject(&self, tenant: TenantId, subject: Subject) {
        self.close_where(|key, _| key.tenant == tenant && key.subject == subject);
    }

    pub(super) fn close_where(&self, is_closed: impl Fn(&ConnectionKey, &Slot) -> bool) {
        self.remove(&mut lock(&self.slots), false, is_closed);
    }

    /// Removes the matching connections from the pool, so that no further call uses them. Each is closed when its last
    /// call has finished, or after `CALL_GRACE` if it belongs to a stdio server and `is_stopped`.
    pub(super) fn remove(
        &self,
        slots: &mut Slots,
        is_stopped: bool,
        is_closed: impl Fn(&ConnectionKey, &Slot) -> bool,
    ) {
        for (key, slot) in slots.extract_if(|key, slot| is_closed(key, slot)) {
            self.publish_status(&key, &slot, ConnectionStatus::Disconnected);
            let is_killed = is_stopped && !lock(&slot.status).is_remote;
            self.closing.spawn(slot.close(is_killed.then_some(CALL_GRACE)));
        }
    }
}
