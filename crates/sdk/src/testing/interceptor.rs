//! Interceptor between a client and another transport, which can observe and change messages.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};

use linchpin_jsonrpc::{CallError, Id, Outbox};
use linchpin_protocol::Revision;

use crate::lock::lock;
use crate::transport::memory::deliver_all;
use crate::transport::{PerRequestTransport, Receiver, Transport, TransportHandle, Wire};

/// Test tool between a client and a server, which receives every message and decides what is passed on.
pub(super) trait Interceptor: Send + Sync + 'static {
    /// Handles a message from the client.
    fn on_sent(&self, message: &[u8]);
    /// Handles a message from the server.
    fn on_received(&self, message: &[u8]);
}

/// Both sides of a connection between which an interceptor passes messages.
pub(super) struct Endpoints {
    client: Wire,
    server: Arc<Outbox>,
    handle: Mutex<Option<Arc<dyn TransportHandle>>>,
}

impl Endpoints {
    pub(super) fn to_server(&self, message: &[u8]) {
        self.server.send(|out| out.extend_from_slice(message));
    }

    pub(super) fn to_client(&self, message: &[u8]) {
        if !self.is_ended() {
            self.client.receive(message);
        }
    }

    /// Returns whether the intercepted connection has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.client.is_ended()
    }

    /// Closes the intercepted connection at the client and at the server.
    pub(super) fn close(&self, reason: &str) {
        self.client.report_closed(reason);
        self.server.close();
        drop(lock(&self.handle).take());
    }
}

/// Opens `transport` with an interceptor between client and server.
pub(super) async fn open<B: Interceptor>(
    transport: &dyn Transport,
    client: Wire,
    make_interceptor: impl FnOnce(Arc<Endpoints>) -> B,
) -> io::Result<Box<dyn TransportHandle>> {
    let server = Arc::new(Outbox::without_callback(usize::MAX));
    let sides = Arc::new(Endpoints { client, server, handle: Mutex::default() });
    let junction = Arc::new(InterceptedConnection {
        interceptor: make_interceptor(sides.clone()),
        endpoints: sides.clone(),
        outgoing_lock: Mutex::new(()),
    });
    let wire = Wire::new(junction.clone(), sides.server.clone(), sides.client.max_message());
    let line: Arc<dyn TransportHandle> = transport.open(wire).await?.into();
    *lock(&sides.handle) = Some(line);
    if sides.is_ended() {
        sides.close("the connection has ended"); // while it was being opened
    }
    let upstream = Arc::downgrade(&junction);
    sides.client.on_outgoing(move || {
        upstream.upgrade().into_iter().for_each(|junction| junction.deliver_to_server());
    });
    Ok(Box::new(InterceptedHandle(junction)))
}

struct InterceptedConnection<B> {
    interceptor: B,
    endpoints: Arc<Endpoints>,
    /// Lock held while messages of the client are passed on, so that they stay in order.
    outgoing_lock: Mutex<()>,
}

impl<B: Interceptor> InterceptedConnection<B> {
    fn deliver_to_server(&self) {
        let client = &self.endpoints.client;
        let (has_messages, take) =
            (|| client.has_outgoing(), |lines: &mut Vec<u8>| client.take_outgoing(lines));
        deliver_all(has_messages, take, &self.outgoing_lock, |message| self.interceptor.on_sent(message));
    }
}

impl<B: Interceptor> Receiver for InterceptedConnection<B> {
    fn receive(&self, message: &[u8], _: Option<&Id<'_>>) -> bool {
        self.interceptor.on_received(message);
        true
    }

    fn too_long(&self) {
        self.endpoints.client.too_long();
    }

    fn on_closed(&self, reason: &str) {
        self.endpoints.client.report_closed(reason);
    }

    fn revision(&self) -> Option<Revision> {
        self.endpoints.client.revision()
    }

    fn fail(&self, id: &Id<'_>, error: CallError) {
        self.endpoints.client.fail(id, error);
    }

    fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.endpoints.client.is_waiting(id)
    }

    fn session_renewed(&self) {
        self.endpoints.client.session_renewed();
    }

    fn set_per_request(&self, transport: Weak<dyn PerRequestTransport>) {
        self.endpoints.client.set_per_request(transport);
    }
}

struct InterceptedHandle<B>(Arc<InterceptedConnection<B>>);

impl<B: Interceptor> TransportHandle for InterceptedHandle<B> {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let line = lock(&self.0.endpoints.handle).clone();
        Box::pin(async move {
            if let Some(line) = line {
                line.close().await;
            }
            self.0.endpoints.close("the client closed the connection");
        })
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let line = lock(&self.0.endpoints.handle).clone();
        Box::pin(async move {
            if let Some(line) = line {
                line.flush().await;
            }
        })
    }
}

impl<B> Drop for InterceptedHandle<B> {
    fn drop(&mut self) {
        self.0.endpoints.close("the client closed the connection");
    }
}
