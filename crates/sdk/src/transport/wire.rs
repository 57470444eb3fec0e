//! Interface between a transport and its connection: received messages go in, outgoing messages come out.

use std::sync::{Arc, Weak};

use linchpin_jsonrpc::{CallError, Id, Outbox};
use linchpin_protocol::Revision;
use linchpin_protocol::model::Tool;
use tokio::sync::Notify;

/// Receiver of the messages that a transport reads.
pub(crate) trait Receiver: Send + Sync {
    /// Handles one received message, without its newline, that arrived on the response stream of `request`, if any.
    /// Returns whether it was a valid message.
    fn receive(&self, message: &[u8], request: Option<&Id<'_>>) -> bool;
    /// Called by the transport when it has skipped a message longer than [`Wire::max_message`].
    fn too_long(&self);
    /// Called by the transport when the connection has ended, with the reason.
    fn on_closed(&self, reason: &str);
    /// Returns the negotiated protocol revision, once known.
    fn revision(&self) -> Option<Revision> {
        None
    }
    /// Returns the name of the server in log events.
    #[cfg(feature = "http-client")]
    #[expect(clippy::unnecessary_literal_bound, reason = "implementations return a name of their own")]
    fn server_label(&self) -> &str {
        "unknown"
    }
    /// Fails the request with this id.
    fn fail(&self, _: &Id<'_>, _: CallError) {}
    /// Returns whether the client still waits for the response to this request.
    fn is_waiting(&self, _: &Id<'_>) -> bool {
        false
    }
    /// Reports to the client that the transport has replaced a lost session, so that its state is restored.
    fn session_renewed(&self) {}
    /// Pauses the timeouts of all pending requests until the returned guard is dropped.
    fn pause_timeouts(&self) -> Box<dyn Send> {
        Box::new(())
    }
    /// Registers a transport that sends each request separately: a lost read-only request is then sent again, and tools
    /// are checked before they are called.
    fn set_per_request(&self, _: Weak<dyn PerRequestTransport>) {}
}

/// Extension for transports that send each request separately and can lose one without losing the others. A lost
/// read-only request is sent once more; tool calls are never repeated.
pub trait PerRequestTransport: Send + Sync {
    /// Checks that a tool of the server's list can be called over this transport, and prepares its header annotations.
    /// A tool that cannot be called over this transport is skipped; the error is the reason.
    fn accept_tool(&self, tool: &Tool) -> Result<(), String>;
}

/// Link from a transport to its connection: takes received messages, and provides outgoing ones. Cheap to clone.
#[derive(Clone)]
pub struct Wire {
    receiver: Arc<dyn Receiver>,
    outbox: Arc<Outbox>,
    max_message: usize,
}

impl Wire {
    pub(crate) fn new(receiver: Arc<dyn Receiver>, outbox: Arc<Outbox>, max_message: usize) -> Self {
        Wire { receiver, outbox, max_message }
    }

    /// Passes a received message to the client, with or without its newline. As far as no waiting is needed, it is
    /// handled before this returns. Invalid messages are skipped.
    pub fn receive(&self, message: &[u8]) {
        self.try_receive(message);
    }

    /// Like [`Self::receive`], and returns whether it was a valid message.
    pub fn try_receive(&self, message: &[u8]) -> bool {
        self.receiver.receive(message.strip_suffix(b"\n").unwrap_or(message), None)
    }

    /// Like [`Self::try_receive`], for a message that arrived on the response stream of the request with this id. Server
    /// requests and notifications are then passed to the call that sent the request.
    pub fn receive_for(&self, request: &Id<'_>, message: &[u8]) -> bool {
        self.receiver.receive(message.strip_suffix(b"\n").unwrap_or(message), Some(request))
    }

    /// Reports that a message longer than [`Self::max_message`] was skipped.
    pub fn too_long(&self) {
        self.receiver.too_long();
    }

    /// Reports the end of the connection with a reason. All pending requests fail with it, and later outgoing
    /// messages are dropped.
    pub fn report_closed(&self, reason: &str) {
        self.receiver.on_closed(reason);
        self.outbox.close();
    }

    /// Fails one request with this error; the connection continues. Does nothing if the request already has its
    /// response.
    pub fn fail(&self, id: &Id<'_>, error: CallError) {
        self.receiver.fail(id, error);
    }

    /// Returns whether the client still waits for the response to this request.
    pub fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.receiver.is_waiting(id)
    }

    /// Returns the negotiated revision, once it is known.
    pub fn revision(&self) -> Option<Revision> {
        self.receiver.revision()
    }

    /// Returns the name of the server in log events.
    #[cfg(feature = "http-client")]
    pub(crate) fn server_label(&self) -> &str {
        self.receiver.server_label()
    }

    /// Reports that the server session was lost and replaced, so that the client restores its state.
    pub fn session_renewed(&self) {
        self.receiver.session_renewed();
    }

    /// Pauses the timeouts of all pending requests until the returned guard is dropped, for example while a user
    /// signs in.
    pub fn pause_timeouts(&self) -> Box<dyn Send> {
        self.receiver.pause_timeouts()
    }

    /// Declares that the transport sends each request separately. Call it once, before anything is sent.
    pub fn set_per_request(&self, transport: Weak<dyn PerRequestTransport>) {
        self.receiver.set_per_request(transport);
    }

    /// Returns the maximum size of a received message in bytes.
    pub fn max_message(&self) -> usize {
        self.max_message
    }

    /// Returns whether the connection to the server has ended.
    pub fn is_ended(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Sets a callback that is called when there are outgoing messages, or when the connection ends. It must not
    /// block.
    pub fn on_outgoing(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.outbox.on_send(wake);
    }

    /// Moves all outgoing messages, each with its newline, into `buffer`, which must be empty.
    pub fn take_outgoing(&self, buffer: &mut Vec<u8>) {
        self.outbox.take(buffer);
    }

    /// Returns whether messages wait to be sent to the server.
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns an asynchronous reader of the outgoing messages. It replaces the callback of [`Self::on_outgoing`].
    pub fn outgoing(&self) -> OutgoingMessages {
        OutgoingMessages::from_outbox(self.outbox.clone())
    }
}

/// Asynchronous reader of the outgoing messages of a connection, for transports.
pub struct OutgoingMessages {
    outbox: Arc<Outbox>,
    ready: Arc<Notify>,
}

impl OutgoingMessages {
    /// Creates the only reader of `outbox`.
    pub(crate) fn from_outbox(outbox: Arc<Outbox>) -> Self {
        let ready = Arc::new(Notify::new());
        let wake = ready.clone();
        outbox.on_send(move || wake.notify_one());
        OutgoingMessages { outbox, ready }
    }

    /// Waits for outgoing messages and returns all of them, each with its newline. Returns `None` once the
    /// connection has ended.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut messages = Vec::new();
            self.outbox.take(&mut messages);
            if !messages.is_empty() {
                return Some(messages);
            }
            if self.outbox.is_closed() {
                return None;
            }
            self.ready.notified().await;
        }
    }
}
