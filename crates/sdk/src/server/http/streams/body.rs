//! Response body that carries an SSE stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linchpin_jsonrpc::{Outbox, TakeOutcome};
use tokio::time::{Instant, Sleep};

use super::SessionStream;
use super::event_store::StoredEvent;
use super::sse_frame::{write_event, write_events, write_id_event, write_retry};

/// Callback that a response body calls when the client disconnects.
pub(in crate::server::http) type OnDisconnect = Box<dyn FnOnce() + Send + Sync>;

/// HTTP response body that carries an SSE stream.
pub(in crate::server::http) struct StreamBody {
    outbox: Arc<Outbox>,
    /// Resumable stream that this response carries, and the number of this response in it.
    resumable: Option<(Arc<SessionStream>, u64)>,
    /// Bytes to send before anything else.
    pending: Vec<u8>,
    /// Whether the stream ends after `pending`.
    is_last: bool,
    /// When the response ends, regardless of queued messages.
    deadline: Option<Instant>,
    buffer: Vec<u8>,
    keep_alive_interval: Duration,
    wake_timer: Pin<Box<Sleep>>,
    on_disconnect: Option<OnDisconnect>,
}

impl StreamBody {
    /// Creates the body of a stream that cannot be resumed. It ends after the last message of the outbox.
    pub(in crate::server::http) fn new(outbox: Arc<Outbox>, keep_alive_interval: Duration) -> Self {
        StreamBody {
            outbox,
            resumable: None,
            pending: Vec::new(),
            is_last: false,
            deadline: None,
            buffer: Vec::new(),
            keep_alive_interval,
            wake_timer: Box::pin(tokio::time::sleep(keep_alive_interval)),
            on_disconnect: None,
        }
    }

    /// Creates the body of a response that carries a resumable stream. The response that carried it before ends.
    pub(in crate::server::http) fn resumable(
        stream: Arc<SessionStream>,
        keep_alive_interval: Duration,
    ) -> Self {
        let response_number = stream.attach();
        Self::with_stream(stream, response_number, keep_alive_interval)
    }

    /// Creates the body of a response that carries a resumable stream; `None` if another response already carries it.
    pub(in crate::server::http) fn resumable_if_detached(
        stream: Arc<SessionStream>,
        keep_alive_interval: Duration,
    ) -> Option<Self> {
        let response_number = stream.attach_if_detached()?;
        Some(Self::with_stream(stream, response_number, keep_alive_interval))
    }

    fn with_stream(stream: Arc<SessionStream>, response_number: u64, keep_alive_interval: Duration) -> Self {
        let mut body = Self::new(stream.outbox().clone(), keep_alive_interval);
        body.resumable = Some((stream, response_number));
        body
    }

    /// Creates a body with the missed events of a finished stream.
    pub(in crate::server::http) fn finished(
        stream: u32,
        missed: &[StoredEvent],
        keep_alive_interval: Duration,
    ) -> Self {
        let mut body = Self::new(Arc::new(Outbox::without_callback(0)), keep_alive_interval);
        body.is_last = true;
        for event in missed {
            write_event(Some((stream, event.number)), &event.message, &mut body.pending);
        }
        body
    }

    /// Makes the stream start with an event with an id and empty data, if the revision supports it, so that the client
    /// can resume from the start.
    pub(in crate::server::http) fn with_priming_event(mut self) -> Self {
        if let Some((stream, _)) = self.resumable.as_ref().filter(|(stream, _)| stream.is_primed()) {
            write_id_event(stream.number(), stream.last(), &mut self.pending);
        }
        self
    }

    /// Makes the stream start with messages that were already taken from the outbox.
    pub(in crate::server::http) fn with_lines(mut self, lines: &[u8], is_last: bool) -> Self {
        match &self.resumable {
            Some((stream, _)) => stream.append(lines, &mut self.pending),
            None => write_events(lines, &mut self.pending),
        }
        if is_last {
            self.finish();
        }
        self
    }

    /// Makes the stream start with the events that the client has missed; `None` if there is a gap.
    pub(in crate::server::http) fn with_missed_events(
        mut self,
        number: u64,
        missed: &[StoredEvent],
    ) -> Option<Self> {
        let (stream, _) = self.resumable.as_ref()?;
        if !stream.is_contiguous(number, missed) {
            return None;
        }
        for event in missed {
            write_event(Some((stream.number(), event.number)), &event.message, &mut self.pending);
        }
        Some(self)
    }

    /// Makes the body start with this text, before the messages.
    pub(in crate::server::http) fn with_text(mut self, text: &str) -> Self {
        self.pending.extend_from_slice(text.as_bytes());
        self
    }

    /// Ends the response at once and asks the client to reconnect after `delay`.
    pub(in crate::server::http) fn with_retry(mut self, delay: Duration) -> Self {
        write_retry(delay, &mut self.pending);
        self.is_last = true;
        self
    }

    pub(in crate::server::http) fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = Some(on_disconnect);
        self
    }

    /// Sets the time at which the SSE stream ends: the client has to reconnect and authenticate again.
    pub(in crate::server::http) fn end_at(&mut self, end: Instant) {
        self.deadline = Some(end);
        self.schedule_wake();
    }

    fn has_ended(&self) -> bool {
        self.is_last || self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Schedules the next wake-up: for a keep-alive comment, or at the deadline.
    fn schedule_wake(&mut self) {
        let next_ping = Instant::now() + self.keep_alive_interval;
        self.wake_timer.as_mut().reset(self.deadline.map_or(next_ping, |end| end.min(next_ping)));
    }

    fn finish(&mut self) {
        self.is_last = true;
        if let Some((stream, _)) = &self.resumable {
            stream.finish();
        }
    }

    fn can_close_early(&self) -> bool {
        self.resumable.as_ref().is_some_and(|(stream, _)| stream.is_primed())
    }

    /// Takes queued messages and frames them as SSE events; `None` if another response carries the stream.
    fn take(&mut self, cx: &Context<'_>) -> Option<Poll<TakeOutcome>> {
        self.buffer.clear();
        if let Some((stream, response_number)) = &self.resumable {
            return stream.take(*response_number, cx, &mut self.buffer, &mut self.pending);
        }
        let found = self.outbox.poll_take(&mut self.buffer, cx);
        write_events(&self.buffer, &mut self.pending);
        Some(found)
    }

    /// Returns the next bytes of the SSE response body; `None` at its end.
    pub(in crate::server::http) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if !self.pending.is_empty() {
                return Poll::Ready(Some(std::mem::take(&mut self.pending).into()));
            }
            if self.has_ended() {
                return Poll::Ready(None);
            }
            let Some(found) = self.take(cx) else { return Poll::Ready(None) };
            match found {
                Poll::Ready(TakeOutcome::Last) => self.finish(),
                Poll::Ready(TakeOutcome::Reconnect(delay)) if self.can_close_early() => {
                    write_retry(delay, &mut self.pending);
                    self.is_last = true;
                }
                Poll::Ready(TakeOutcome::Lines | TakeOutcome::Reconnect(_)) => {} // a stream that cannot be resumed must stay open
                Poll::Pending => {
                    if self.wake_timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    // A comment keeps proxies from closing the stream and detects a disconnected client.
                    if !self.has_ended() {
                        self.pending.extend_from_slice(b":\n\n");
                    }
                }
            }
            self.schedule_wake();
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if let Some((stream, response_number)) = self.resumable.take() {
            stream.detach(response_number);
        }
        if let Some(on_disconnect) = self.on_disconnect.take() {
            on_disconnect();
        }
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamBody")
    }
}
