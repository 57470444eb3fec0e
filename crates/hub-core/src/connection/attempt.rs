//! Attempt to connect to a server, which determines the status that users see.

use std::sync::Arc;

use super::{ConnectionKey, ConnectionPool, ConnectionStatus, Slot};

/// Guard that sets the connection status of a server when an attempt to connect ends. If the caller stops waiting, it
/// is dropped and the status becomes `disconnected`.
pub(super) struct ConnectAttempt<'a> {
    connections: &'a ConnectionPool,
    key: &'a ConnectionKey,
    slot: &'a Arc<Slot>,
    final_status: ConnectionStatus,
}

impl<'a> ConnectAttempt<'a> {
    pub(super) fn start(
        connections: &'a ConnectionPool,
        key: &'a ConnectionKey,
        slot: &'a Arc<Slot>,
    ) -> Self {
        connections.set_status(key, slot, ConnectionStatus::Connecting);
        ConnectAttempt { connections, key, slot, final_status: ConnectionStatus::Disconnected }
    }

    pub(super) fn finish(mut self, status: ConnectionStatus) {
        self.final_status = status;
    }
}

impl Drop for ConnectAttempt<'_> {
    fn drop(&mut self) {
        self.connections.set_status(self.key, self.slot, self.final_status);
    }
}
