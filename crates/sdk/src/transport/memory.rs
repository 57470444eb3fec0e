//! In-memory transport between a client and a server in one process. Messages are passed on synchronously.

use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError, Weak};

use linchpin_jsonrpc::Outbox;
use tokio::runtime::Handle;

use super::{Line, Opening, Transport, Wire};
use crate::server::{Connection, Reach, Service, start};

/// Bytes that may be queued for the client.
const HIGH_WATER: usize = 1 << 20;

/// Transport to a server in this process.
pub(crate) struct Memory(pub(crate) Service);

impl Transport for Memory {
    fn open(&self, wire: Wire) -> Opening<'_> {
        let line: Box<dyn Line> = Box::new(MemoryLine(Link::new(&self.0, wire)));
        Box::pin(std::future::ready(Ok(line)))
    }

    fn name(&self) -> String {
        format!("{} in this process ({:p})", self.0.settings().info.name, self.0.settings())
    }
}

/// Both directions of an in-memory connection.
struct Link {
    wire: Wire,
    to_client: Arc<Outbox>,
    connection: Arc<Connection>,
    runtime: Handle,
    /// Held while messages are passed on, so that they stay in order.
    upstream: Mutex<()>,
    downstream: Mutex<()>,
}

impl Link {
    fn new(service: &Service, wire: Wire) -> Arc<Self> {
        let to_client = Arc::new(Outbox::unattended(HIGH_WATER));
        let link = Arc::new(Link {
            connection: Connection::new(service.clone(), to_client.clone(), Reach::Lasting),
            wire,
            to_client,
            runtime: Handle::current(),
            upstream: Mutex::new(()),
            downstream: Mutex::new(()),
        });
        let (up, down) = (Arc::downgrade(&link), Arc::downgrade(&link));
        link.to_client.on_send(move || down.upgrade().into_iter().for_each(|link| link.carry_down()));
        link.wire.on_outgoing(move || Weak::upgrade(&up).into_iter().for_each(|link| link.carry_up()));
        link
    }

    fn carry_up(&self) {
        let (has, take) = (|| self.wire.has_outgoing(), |lines: &mut Vec<u8>| self.wire.take(lines));
        carry(has, take, &self.upstream, |line| {
            if let Some(rest) = self.connection.receive(line) {
                start(&self.runtime, self.connection.tracked(rest));
            }
        });
        self.carry_down();
    }

    fn carry_down(&self) {
        let (has, take) = (|| !self.to_client.is_empty(), |lines: &mut Vec<u8>| self.to_client.take(lines));
        carry(has, take, &self.downstream, |line| self.wire.receive(line));
    }
}

/// Passes on all messages in order. The holder of the lock also passes on messages that are added concurrently, for
/// example by a handler that writes to its own client, so that no sender waits for it.
pub(crate) fn carry(
    has_more: impl Fn() -> bool,
    take: impl Fn(&mut Vec<u8>),
    turn: &Mutex<()>,
    mut hand_over: impl FnMut(&[u8]),
) {
    while has_more() {
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut lines = Vec::new();
        take(&mut lines);
        lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(&mut hand_over);
    }
}

/// Handle of the client to the connection.
struct MemoryLine(Arc<Link>);

impl MemoryLine {
    fn end(&self) {
        self.0.connection.abandon();
        self.0.wire.ended("closed by the client");
    }
}

impl Line for MemoryLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.end();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for MemoryLine {
    fn drop(&mut self) {
        self.end();
    }
}
