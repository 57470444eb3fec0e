//! One connection's end of a transport: where messages that arrive go, and where those to be sent come from.

use std::sync::{Arc, Weak};

use linchpin_jsonrpc::{CallError, Id, Outbox};
use linchpin_protocol::Revision;
use linchpin_protocol::model::Tool;
use tokio::sync::Notify;

/// What is done with messages that arrive.
pub(crate) trait Receiver: Send + Sync {
    /// One message, without its newline. Whether it was one.
    fn receive(&self, message: &[u8]) -> bool;
    /// A message that was longer than [`Wire::max_message`] and was skipped.
    fn too_long(&self);
    /// Nothing more will arrive.
    fn ended(&self, reason: &str);
    /// What both sides have agreed on.
    fn revision(&self) -> Option<Revision> {
        None
    }
    /// The name of the server in log events.
    #[cfg(feature = "http-client")]
    #[expect(clippy::unnecessary_literal_bound, reason = "implementations return a name of their own")]
    fn server_label(&self) -> &str {
        "unknown"
    }
    /// One request has no answer.
    fn fail(&self, _: &Id<'_>, _: CallError) {}
    /// Whether a request waits for its answer.
    fn is_waiting(&self, _: &Id<'_>) -> bool {
        false
    }
    /// The session is another one.
    fn renewed(&self) {}
    /// Stops the time of everything that waits for an answer, until what it gives is dropped.
    fn pause(&self) -> Box<dyn Send> {
        Box::new(())
    }
    /// What the transport does beyond carrying messages.
    fn carried_by(&self, _: Weak<dyn Carrier>) {}
}

/// What some transports do beyond carrying messages: those that carry each request by itself, and can lose one
/// without losing the others. What only reads is asked again once when it was lost; calls of tools never are.
pub trait Carrier: Send + Sync {
    /// Takes note of a tool that the server lists. A tool that cannot be called over this transport is left out; the
    /// error is the reason.
    fn admit(&self, tool: &Tool) -> Result<(), String>;
}

/// What a transport is opened with. Cheap to clone.
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

    /// Hands over one message that has arrived, with or without its newline. It is dealt with before this
    /// returns, as far as that needs no waiting. What is no message is skipped.
    pub fn receive(&self, message: &[u8]) {
        self.try_receive(message);
    }

    /// As [`Self::receive`], and says whether it was a message.
    pub fn try_receive(&self, message: &[u8]) -> bool {
        self.receiver.receive(message.strip_suffix(b"\n").unwrap_or(message))
    }

    /// Says that a message was longer than [`Self::max_message`] and was skipped.
    pub fn too_long(&self) {
        self.receiver.too_long();
    }

    /// Says that nothing more will arrive, and why. Everything that waits for an answer fails with this reason;
    /// messages to be sent are dropped from now on.
    pub fn ended(&self, reason: &str) {
        self.receiver.ended(reason);
        self.outbox.close();
    }

    /// Says that one request will have no answer; everything else goes on. Nothing happens if it was answered before.
    pub fn fail(&self, id: &Id<'_>, error: CallError) {
        self.receiver.fail(id, error);
    }

    /// Whether a request still waits for its answer.
    pub fn is_waiting(&self, id: &Id<'_>) -> bool {
        self.receiver.is_waiting(id)
    }

    /// The revision that both sides have agreed on, once they have.
    pub fn revision(&self) -> Option<Revision> {
        self.receiver.revision()
    }

    /// The name of the server in log events.
    #[cfg(feature = "http-client")]
    pub(crate) fn server_label(&self) -> &str {
        self.receiver.server_label()
    }

    /// Says that the session was lost and another one opened in its place: what belongs to a session is set again.
    pub fn renewed(&self) {
        self.receiver.renewed();
    }

    /// Stops the time of everything that waits for an answer, until what it gives is dropped: for when a person is
    /// asked for something first.
    pub fn pause(&self) -> Box<dyn Send> {
        self.receiver.pause()
    }

    /// Says that the transport carries each request by itself. Once, before anything is sent.
    pub fn carried_by(&self, carrier: Weak<dyn Carrier>) {
        self.receiver.carried_by(carrier);
    }

    /// The longest message that is wanted, in bytes.
    pub fn max_message(&self) -> usize {
        self.max_message
    }

    /// Whether the connection has ended: nothing more is to be sent.
    pub fn is_ended(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Calls `wake` whenever there is something to send, or nothing more will be. It must not block.
    pub fn on_outgoing(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.outbox.on_send(wake);
    }

    /// Moves everything that is to be sent into `into`, which must be empty: messages, each with its newline.
    pub fn take(&self, into: &mut Vec<u8>) {
        self.outbox.take(into);
    }

    /// Whether there is something to send.
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// For transports that wait instead of being woken. It takes the place of [`Self::on_outgoing`].
    pub fn outgoing(&self) -> Outgoing {
        Outgoing::of(self.outbox.clone())
    }
}

/// What is to be sent, to be waited for.
pub struct Outgoing {
    outbox: Arc<Outbox>,
    ready: Arc<Notify>,
}

impl Outgoing {
    /// What is to be sent through `outbox`, which nobody else empties.
    pub(crate) fn of(outbox: Arc<Outbox>) -> Self {
        let ready = Arc::new(Notify::new());
        let wake = ready.clone();
        outbox.on_send(move || wake.notify_one());
        Outgoing { outbox, ready }
    }

    /// Everything that is to be sent, messages each with its newline, as soon as there is something; `None` once
    /// the connection has ended.
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
