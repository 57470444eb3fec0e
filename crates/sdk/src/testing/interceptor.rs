//! Interceptor between a client and another transport, which can observe and change messages.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};

use linchpin_jsonrpc::{CallError, Id, Outbox};
use linchpin_protocol::Revision;

use crate::lock::lock;
use crate::transport::memory::carry;
use crate::transport::{Carrier, Line, Receiver, Transport, Wire};

/// Receives every message and decides what is passed on.
pub(super) trait Between: Send + Sync + 'static {
    /// Handles a message from the client.
    fn sent(&self, message: &[u8]);
    /// Handles a message from the server.
    fn received(&self, message: &[u8]);
}

/// Both ends of an intercepted connection.
pub(super) struct Sides {
    client: Wire,
    server: Arc<Outbox>,
    line: Mutex<Option<Arc<dyn Line>>>,
}

impl Sides {
    pub(super) fn to_server(&self, message: &[u8]) {
        self.server.send(|out| out.extend_from_slice(message));
    }

    pub(super) fn to_client(&self, message: &[u8]) {
        if !self.are_apart() {
            self.client.receive(message);
        }
    }

    /// Returns whether the connection has ended.
    pub(super) fn are_apart(&self) -> bool {
        self.client.is_ended()
    }

    /// Ends the connection for both ends.
    pub(super) fn cut(&self, reason: &str) {
        self.client.ended(reason);
        self.server.close();
        drop(lock(&self.line).take());
    }
}

/// Opens `transport` with an interceptor.
pub(super) async fn open<B: Between>(
    transport: &dyn Transport,
    client: Wire,
    between: impl FnOnce(Arc<Sides>) -> B,
) -> io::Result<Box<dyn Line>> {
    let server = Arc::new(Outbox::unattended(usize::MAX));
    let sides = Arc::new(Sides { client, server, line: Mutex::default() });
    let junction =
        Arc::new(Junction { between: between(sides.clone()), sides: sides.clone(), turn: Mutex::new(()) });
    let wire = Wire::new(junction.clone(), sides.server.clone(), sides.client.max_message());
    let line: Arc<dyn Line> = transport.open(wire).await?.into();
    *lock(&sides.line) = Some(line);
    if sides.are_apart() {
        sides.cut("the connection has ended"); // while it was being opened
    }
    let upstream = Arc::downgrade(&junction);
    sides.client.on_outgoing(move || upstream.upgrade().into_iter().for_each(|junction| junction.carry_up()));
    Ok(Box::new(JunctionLine(junction)))
}

struct Junction<B> {
    between: B,
    sides: Arc<Sides>,
    /// Held while messages of the client are passed on, so that they stay in order.
    turn: Mutex<()>,
}

impl<B: Between> Junction<B> {
    fn carry_up(&self) {
        let client = &self.sides.client;
        let (has, take) = (|| client.has_outgoing(), |lines: &mut Vec<u8>| client.take(lines));
        carry(has, take, &self.turn, |message| self.between.sent(message));
    }
}

impl<B: Between> Receiver for Junction<B> {
    fn receive(&self, message: &[u8]) -> bool {
        self.between.received(message);
        true
    }

    fn too_long(&self) {
        self.sides.client.too_long();
    }

    fn ended(&self, reason: &str) {
        self.sides.client.ended(reason);
    }

    fn revision(&self) -> Option<Revision> {
        self.sides.client.revision()
    }

    fn fail(&self, id: &Id<'_>, error: CallError) {
        self.sides.client.fail(id, error);
    }

    fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.sides.client.is_waiting(id)
    }

    fn renewed(&self) {
        self.sides.client.renewed();
    }

    fn carried_by(&self, carrier: Weak<dyn Carrier>) {
        self.sides.client.carried_by(carrier);
    }
}

struct JunctionLine<B>(Arc<Junction<B>>);

impl<B: Between> Line for JunctionLine<B> {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let line = lock(&self.0.sides.line).clone();
        Box::pin(async move {
            if let Some(line) = line {
                line.close().await;
            }
            self.0.sides.cut("closed by the client");
        })
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let line = lock(&self.0.sides.line).clone();
        Box::pin(async move {
            if let Some(line) = line {
                line.flush().await;
            }
        })
    }
}

impl<B> Drop for JunctionLine<B> {
    fn drop(&mut self) {
        self.0.sides.cut("closed by the client");
    }
}
