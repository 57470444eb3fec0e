//! Checks whether pooled connections to servers still work. HTTP connections have no visible end: a request that does
//! not reach the server reveals it, and idle connections are checked with a ping.

use std::time::Duration;

use jiff::Timestamp;
use linchpin::{CallError, Client, ClientError};

use super::{ConnectionPool, ConnectionStatus, MAX_USERS, PooledConnection, Slot, SlotState, is_within};
use crate::id::{ServerId, TenantId};
use crate::lock::lock;
use crate::server::Server;

/// Idle time after which a connection is checked, and the interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Timeout of the ping that checks an idle connection.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns whether an error means that the request did not reach the server, or that no response came back.
fn is_unreachable(error: &ClientError) -> bool {
    match error {
        ClientError::Call(CallError::Transport { status: Some(status), .. }) => matches!(status, 502..=504),
        ClientError::Call(CallError::Transport { code, .. }) => *code == "HTTP_CONNECT",
        ClientError::Call(CallError::Closed(_) | CallError::Lost(_)) | ClientError::OutcomeUnknown { .. } => {
            true
        }
        _ => false,
    }
}

impl PooledConnection {
    /// Returns the tenant and the server that the connection belongs to.
    pub(crate) fn upstream(&self) -> (TenantId, ServerId) {
        (self.key.tenant, self.key.server)
    }

    /// Waits until the connection is closed for new uses. Its closing waits until this use ends.
    pub(crate) async fn closing(&self) {
        let _ = self.slot.closing.acquire().await; // there is no permit: it returns when the semaphore is closed
    }

    /// Returns whether the connection is open and new requests would use it.
    pub(crate) fn is_current(&self) -> bool {
        let is_slot_connection = |state: &SlotState| state.number == self.number && state.client.is_some();
        !self.is_closed() && self.slot.state.try_lock().map_or(true, |state| is_slot_connection(&state))
    }
}

impl Slot {
    fn is_due(&self, now: Timestamp) -> bool {
        let mut status = lock(&self.status);
        let is_quiet = !is_within(status.last_used, now, CHECK_INTERVAL)
            && !is_within(status.checked, now, CHECK_INTERVAL);
        let is_due = status.is_remote && status.status == ConnectionStatus::Connected && is_quiet;
        if is_due {
            status.checked = now;
        }
        is_due
    }
}

impl ConnectionPool {
    /// Returns an open connection of any subject to this version of the server.
    pub(crate) fn find_open(&self, tenant: TenantId, server: &Server) -> Option<PooledConnection> {
        let slots = lock(&self.slots);
        let mut server_slots = slots
            .iter()
            .filter(|(key, _)| (key.tenant, key.server, key.version) == (tenant, server.id, server.version));
        server_slots.find_map(|(key, slot)| Slot::pooled(slot, key))
    }

    /// Records a failed request of a connection. If the server was not reached, the status becomes `error`, and the
    /// next use opens another connection. Returns whether that is the case.
    pub(crate) async fn report_failure(&self, connection: &PooledConnection, error: &ClientError) -> bool {
        if !is_unreachable(error) || !lock(&connection.slot.status).is_remote {
            return false;
        }
        let mut state = connection.slot.state.lock().await;
        if state.number != connection.number || state.client.is_none() {
            return false; // another request has reported it already
        }
        // Other calls may still use the connection, and fail with it.
        (state.client, state.opened) = (None, None);
        self.set_status(&connection.key, &connection.slot, ConnectionStatus::Error);
        true
    }

    /// Returns the idle connections to remote servers that are due for a liveness check.
    pub(crate) fn due_for_check(&self) -> Vec<PooledConnection> {
        let (now, slots) = (self.platform.now(), lock(&self.slots));
        let due = slots.iter().filter(|(_, slot)| slot.is_due(now));
        due.filter_map(|(key, slot)| Slot::pooled(slot, key)).collect()
    }

    /// Pings the server over this connection. Returns whether it was not reached.
    pub(crate) async fn ping_fails(&self, connection: &PooledConnection) -> bool {
        match tokio::time::timeout(CHECK_TIMEOUT, connection.ping()).await {
            Ok(Err(error)) => self.report_failure(connection, &error).await,
            Ok(Ok(())) | Err(_) => false, // a slow server is not gone
        }
    }

    /// Publishes the status `disconnected` for connections that the server has closed.
    pub fn reap_closed(&self) {
        let slots = lock(&self.slots);
        for (key, slot) in &*slots {
            let is_closed = |state: &SlotState| state.client.as_ref().is_some_and(Client::is_closed);
            if slot.state.try_lock().is_ok_and(|state| is_closed(&state)) {
                self.publish_status(key, slot, ConnectionStatus::Disconnected);
            }
        }
    }

    /// Closes connections that have been idle for this time. A connection in use is not idle.
    pub fn close_idle(&self, idle_timeout: Duration) {
        let now = self.platform.now();
        let is_idle = |last_used: Timestamp| {
            Duration::try_from(now.duration_since(last_used)).is_ok_and(|idle| idle >= idle_timeout)
        };
        let is_unused = |slot: &Slot| slot.users.available_permits() == MAX_USERS as usize;
        self.close_where(|_, slot| is_unused(slot) && is_idle(lock(&slot.status).last_used));
    }
}
