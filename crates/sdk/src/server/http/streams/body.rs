//! Response body that carries an SSE stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linchpin_jsonrpc::{Outbox, Taken};
use tokio::time::{Instant, Sleep};

use super::Stream;
use super::event_store::KeptEvent;
use super::sse_frame::{write_empty, write_event, write_events, write_retry};

/// Callback for the disconnection of the client.
pub(in crate::server::http) type OnGone = Box<dyn FnOnce() + Send + Sync>;

/// Response body that carries a stream.
pub(in crate::server::http) struct StreamBody {
    outbox: Arc<Outbox>,
    /// The resumable stream, and the turn of this response in it.
    resumable: Option<(Arc<Stream>, u64)>,
    /// Bytes to send before anything else.
    first: Vec<u8>,
    /// Whether the stream ends after `first`.
    ends: bool,
    /// When the stream ends, regardless of pending messages.
    deadline: Option<Instant>,
    taken: Vec<u8>,
    quiet: Duration,
    keep_alive: Pin<Box<Sleep>>,
    on_gone: Option<OnGone>,
}

impl StreamBody {
    /// Creates a stream that ends with its response.
    pub(in crate::server::http) fn new(outbox: Arc<Outbox>, quiet: Duration) -> Self {
        StreamBody {
            outbox,
            resumable: None,
            first: Vec::new(),
            ends: false,
            deadline: None,
            taken: Vec::new(),
            quiet,
            keep_alive: Box::pin(tokio::time::sleep(quiet)),
            on_gone: None,
        }
    }

    /// Creates a resumable stream. The response that carried it before ends.
    pub(in crate::server::http) fn resumable(stream: Arc<Stream>, quiet: Duration) -> Self {
        let turn = stream.attach();
        Self::carrying(stream, turn, quiet)
    }

    /// Like [`Self::resumable`]; `None` if another response already carries the stream.
    pub(in crate::server::http) fn only(stream: Arc<Stream>, quiet: Duration) -> Option<Self> {
        let turn = stream.attach_first()?;
        Some(Self::carrying(stream, turn, quiet))
    }

    fn carrying(stream: Arc<Stream>, turn: u64, quiet: Duration) -> Self {
        let mut body = Self::new(stream.outbox().clone(), quiet);
        body.resumable = Some((stream, turn));
        body
    }

    /// Creates a body with the missed events of a finished stream.
    pub(in crate::server::http) fn finished(stream: u32, missed: &[KeptEvent], quiet: Duration) -> Self {
        let mut body = Self::new(Arc::new(Outbox::unattended(0)), quiet);
        body.ends = true;
        for event in missed {
            write_event(Some((stream, event.number)), &event.message, &mut body.first);
        }
        body
    }

    /// Starts with an event that has only an id, if the revision supports it, so that the client can resume from the
    /// start.
    pub(in crate::server::http) fn primed(mut self) -> Self {
        if let Some((stream, _)) = self.resumable.as_ref().filter(|(stream, _)| stream.is_primed()) {
            write_empty(stream.number(), stream.last(), &mut self.first);
        }
        self
    }

    /// Starts with messages that were already taken from the outbox.
    pub(in crate::server::http) fn with_lines(mut self, lines: &[u8], ends: bool) -> Self {
        match &self.resumable {
            Some((stream, _)) => stream.append(lines, &mut self.first),
            None => write_events(lines, &mut self.first),
        }
        if ends {
            self.finish();
        }
        self
    }

    /// Starts with the missed events; `None` if there is a gap.
    pub(in crate::server::http) fn with_missed(mut self, number: u64, missed: &[KeptEvent]) -> Option<Self> {
        let (stream, _) = self.resumable.as_ref()?;
        if !stream.joins(number, missed) {
            return None;
        }
        for event in missed {
            write_event(Some((stream.number(), event.number)), &event.message, &mut self.first);
        }
        Some(self)
    }

    /// Starts with this text.
    pub(in crate::server::http) fn with_text(mut self, text: &str) -> Self {
        self.first.extend_from_slice(text.as_bytes());
        self
    }

    /// Ends the response at once and asks the client to reconnect after `pause`.
    pub(in crate::server::http) fn hung_up(mut self, pause: Duration) -> Self {
        write_retry(pause, &mut self.first);
        self.ends = true;
        self
    }

    pub(in crate::server::http) fn on_gone(mut self, on_gone: OnGone) -> Self {
        self.on_gone = Some(on_gone);
        self
    }

    /// Sets the time at which the stream ends: the client has to reconnect and authenticate again.
    pub(in crate::server::http) fn end_at(&mut self, end: Instant) {
        self.deadline = Some(end);
        self.schedule_wake();
    }

    fn is_over(&self) -> bool {
        self.ends || self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Schedules the next wake-up: for a keep-alive comment, or at the deadline.
    fn schedule_wake(&mut self) {
        let quiet = Instant::now() + self.quiet;
        self.keep_alive.as_mut().reset(self.deadline.map_or(quiet, |end| end.min(quiet)));
    }

    fn finish(&mut self) {
        self.ends = true;
        if let Some((stream, _)) = &self.resumable {
            stream.finish();
        }
    }

    fn can_be_let_go(&self) -> bool {
        self.resumable.as_ref().is_some_and(|(stream, _)| stream.is_primed())
    }

    /// Takes pending messages and frames them into `first`; `None` if another response carries the stream.
    fn take(&mut self, cx: &Context<'_>) -> Option<Poll<Taken>> {
        self.taken.clear();
        if let Some((stream, turn)) = &self.resumable {
            return stream.take(*turn, cx, &mut self.taken, &mut self.first);
        }
        let found = self.outbox.poll_take(&mut self.taken, cx);
        write_events(&self.taken, &mut self.first);
        Some(found)
    }

    /// Returns the next bytes; `None` at the end.
    pub(in crate::server::http) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if !self.first.is_empty() {
                return Poll::Ready(Some(std::mem::take(&mut self.first).into()));
            }
            if self.is_over() {
                return Poll::Ready(None);
            }
            let Some(found) = self.take(cx) else { return Poll::Ready(None) };
            match found {
                Poll::Ready(Taken::Last) => self.finish(),
                Poll::Ready(Taken::HangUp(pause)) if self.can_be_let_go() => {
                    write_retry(pause, &mut self.first);
                    self.ends = true;
                }
                Poll::Ready(Taken::Some | Taken::HangUp(_)) => {} // a stream that cannot be resumed must stay open
                Poll::Pending => {
                    if self.keep_alive.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    // A comment keeps proxies from closing the stream and detects a disconnected client.
                    if !self.is_over() {
                        self.first.extend_from_slice(b":\n\n");
                    }
                }
            }
            self.schedule_wake();
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if let Some((stream, turn)) = self.resumable.take() {
            stream.detach(turn);
        }
        if let Some(on_gone) = self.on_gone.take() {
            on_gone();
        }
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamBody")
    }
}
