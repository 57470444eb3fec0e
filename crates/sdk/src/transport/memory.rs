//! A client and a server in one process: lines pass from one outbox to the other side at once.

use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};

use linchpin_jsonrpc::Outbox;
use tokio::runtime::Handle;

use crate::server::{Connection, Service};

/// Bytes that may wait in each direction.
const HIGH_WATER: usize = 1 << 20;

/// Takes the lines that come from a server.
pub(crate) trait Receiver: Send + Sync {
    fn receive(&self, line: &[u8]);
}

/// Both directions of a connection in memory.
pub(crate) struct Link {
    to_server: Arc<Outbox>,
    to_client: Arc<Outbox>,
    connection: OnceLock<Arc<Connection>>,
    receiver: OnceLock<Weak<dyn Receiver>>,
    runtime: Handle,
    /// Held while lines are handed over, so that they stay in order.
    upstream: Mutex<()>,
    downstream: Mutex<()>,
}

impl Link {
    /// Connects to a server; [`Self::set_receiver`] completes it.
    pub(crate) fn new(service: &Service) -> Arc<Self> {
        let link = Arc::new_cyclic(|link: &Weak<Link>| {
            let (up, down) = (link.clone(), link.clone());
            Link {
                to_server: Arc::new(Outbox::new(HIGH_WATER, move || {
                    up.upgrade().into_iter().for_each(|link| link.carry_up());
                })),
                to_client: Arc::new(Outbox::new(HIGH_WATER, move || {
                    down.upgrade().into_iter().for_each(|link| link.carry_down());
                })),
                connection: OnceLock::new(),
                receiver: OnceLock::new(),
                runtime: Handle::current(),
                upstream: Mutex::new(()),
                downstream: Mutex::new(()),
            }
        });
        let _ = link.connection.set(Connection::new(service.clone(), link.to_client.clone(), false));
        link
    }

    pub(crate) fn set_receiver(&self, receiver: Weak<dyn Receiver>) {
        let _ = self.receiver.set(receiver);
    }

    /// Where the client writes.
    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.to_server
    }

    fn carry_up(&self) {
        let Some(connection) = self.connection.get() else { return };
        carry(&self.to_server, &self.upstream, |line| {
            if let Some(rest) = connection.receive(line) {
                crate::server::start(&self.runtime, connection.tracked(rest));
            }
        });
        self.carry_down();
    }

    fn carry_down(&self) {
        let Some(receiver) = self.receiver.get().and_then(Weak::upgrade) else { return };
        carry(&self.to_client, &self.downstream, |line| receiver.receive(line));
    }

    /// The client is gone.
    pub(crate) fn close(&self) {
        self.to_server.close();
        if let Some(connection) = self.connection.get() {
            connection.abandon();
        }
    }
}

/// Hands over all lines, in order. Whoever has the turn also hands over what others add meanwhile, a handler that
/// writes to its own client among them, so nobody waits for it.
fn carry(outbox: &Outbox, turn: &Mutex<()>, mut take: impl FnMut(&[u8])) {
    while !outbox.is_empty() {
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut lines = Vec::new();
        outbox.take(&mut lines);
        lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(&mut take);
    }
}
