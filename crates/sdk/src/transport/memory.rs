//! In-memory transport between a client and a server in one process. Messages are passed on synchronously.

use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError, Weak};

use linchpin_jsonrpc::Outbox;
use tokio::runtime::Handle;

use super::{OpenFuture, Transport, TransportHandle, Wire};
use crate::server::{Connection, ReplyChannel, Service, spawn};

/// Number of bytes queued for the client above which the outbox counts as full.
const HIGH_WATER: usize = 1 << 20;

/// In-memory transport to a server in this process.
pub(crate) struct Memory(pub(crate) Service);

impl Transport for Memory {
    fn open(&self, wire: Wire) -> OpenFuture<'_> {
        let line: Box<dyn TransportHandle> = Box::new(MemoryCloser(MemoryLink::new(&self.0, wire)));
        Box::pin(std::future::ready(Ok(line)))
    }

    fn name(&self) -> String {
        format!("{} in this process ({:p})", self.0.settings().info.name, self.0.settings())
    }
}

/// Both directions of an in-memory connection between a client and a server.
struct MemoryLink {
    wire: Wire,
    to_client: Arc<Outbox>,
    connection: Arc<Connection>,
    runtime: Handle,
    /// Lock held while messages are passed on, so that they stay in order.
    upstream: Mutex<()>,
    downstream: Mutex<()>,
}

impl MemoryLink {
    fn new(service: &Service, wire: Wire) -> Arc<Self> {
        let to_client = Arc::new(Outbox::without_callback(HIGH_WATER));
        let link = Arc::new(MemoryLink {
            connection: Connection::new(service.clone(), to_client.clone(), ReplyChannel::Lasting),
            wire,
            to_client,
            runtime: Handle::current(),
            upstream: Mutex::new(()),
            downstream: Mutex::new(()),
        });
        let (client_link, server_link) = (Arc::downgrade(&link), Arc::downgrade(&link));
        link.to_client
            .on_send(move || server_link.upgrade().into_iter().for_each(|link| link.deliver_to_client()));
        link.wire.on_outgoing(move || {
            if let Some(link) = Weak::upgrade(&client_link) {
                link.deliver_to_server();
            }
        });
        link
    }

    fn deliver_to_server(&self) {
        let (has_messages, take) =
            (|| self.wire.has_outgoing(), |lines: &mut Vec<u8>| self.wire.take_outgoing(lines));
        deliver_all(has_messages, take, &self.upstream, |line| {
            if let Some(rest) = self.connection.receive(line) {
                spawn(&self.runtime, self.connection.track(rest));
            }
        });
        self.deliver_to_client();
    }

    fn deliver_to_client(&self) {
        let (has_messages, take) =
            (|| !self.to_client.is_empty(), |lines: &mut Vec<u8>| self.to_client.take(lines));
        deliver_all(has_messages, take, &self.downstream, |line| self.wire.receive(line));
    }
}

/// Passes all queued messages to `deliver`, in order. The holder of the lock also passes on messages that are added
/// concurrently, for example by a handler that writes to its own client, so that no sender waits for it.
pub(crate) fn deliver_all(
    has_more: impl Fn() -> bool,
    take: impl Fn(&mut Vec<u8>),
    lock: &Mutex<()>,
    mut deliver: impl FnMut(&[u8]),
) {
    while has_more() {
        let _turn = match lock.try_lock() {
            Ok(lock) => lock,
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut lines = Vec::new();
        take(&mut lines);
        lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(&mut deliver);
    }
}

/// Handle of an in-memory connection: closes it when the client calls `close`, or on drop. It sends no messages.
struct MemoryCloser(Arc<MemoryLink>);

impl MemoryCloser {
    fn end(&self) {
        self.0.connection.abandon();
        self.0.wire.report_closed("the client closed the connection");
    }
}

impl TransportHandle for MemoryCloser {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.end();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for MemoryCloser {
    fn drop(&mut self) {
        self.end();
    }
}
