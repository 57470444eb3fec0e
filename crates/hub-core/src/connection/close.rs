//! Closing of connections. A connection is closed gracefully when its last call has finished; the connection of a stdio
//! server that is disabled or removed is also closed while calls run.

use std::sync::Arc;
use std::time::Duration;

use super::{Connections, Key, MOST_USERS, Slot, Slots, Status};
use crate::actor::Subject;
use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Time that all connections have to close when the hub shuts down.
const CLOSING: Duration = Duration::from_secs(5);
/// Time that calls have to finish when their stdio server is disabled or removed. The process then has 1.8 s to exit,
/// so that all its processes are gone two seconds after the command.
const CALL_GRACE: Duration = Duration::from_millis(200);

impl Slot {
    /// Closes the connection when no call uses it any more, or after the limit. Calls that are running then have the
    /// outcome `unknown`.
    async fn end(self: Arc<Self>, limit: Option<Duration>) {
        let all = self.users.acquire_many(MOST_USERS);
        let _all = match limit {
            Some(limit) => tokio::time::timeout(limit, all).await.ok(),
            None => Some(all.await),
        };
        self.cut.close();
        let client = self.line.lock().await.client.take();
        if let Some(client) = client {
            client.close().await;
        }
    }
}

impl Connections {
    /// Closes all connections and waits for that, for at most 5 s.
    pub async fn end_all(&self) {
        self.end_where(|_, _| true);
        self.endings.end(CLOSING).await;
    }

    /// Closes all connections to a server.
    pub fn end(&self, tenant: TenantId, server: ServerId) {
        self.end_where(|key, _| key.tenant == tenant && key.server == server);
    }

    /// Closes all connections to a server before this version; `None` if it was removed. If `is_stopped`, the server
    /// must not be used any more, and the connection of a stdio server does not wait for its calls.
    pub fn outdated(&self, tenant: TenantId, server: ServerId, version: Option<u64>, is_stopped: bool) {
        let mut slots = lock(&self.slots);
        lock(&self.newest).insert((tenant, server), version.unwrap_or(u64::MAX));
        self.remove(&mut slots, is_stopped, |key, _| key.tenant == tenant && key.server == server);
    }

    /// Closes all connections of a subject.
    pub fn end_of(&self, tenant: TenantId, subject: Subject) {
        self.end_where(|key, _| key.tenant == tenant && key.subject == subject);
    }

    pub(super) fn end_where(&self, is_over: impl Fn(&Key, &Slot) -> bool) {
        self.remove(&mut lock(&self.slots), false, is_over);
    }

    /// Removes connections, so that no further call uses them. Each is closed when its last call has finished, or after
    /// `CALL_GRACE` if it belongs to a stdio server and `is_stopped`.
    pub(super) fn remove(&self, slots: &mut Slots, is_stopped: bool, is_over: impl Fn(&Key, &Slot) -> bool) {
        for (key, slot) in slots.extract_if(|key, slot| is_over(key, slot)) {
            self.say(&key, &slot, Status::Disconnected);
            let is_cut = is_stopped && !lock(&slot.seen).is_remote;
            self.endings.start(slot.end(is_cut.then_some(CALL_GRACE)));
        }
    }
}
