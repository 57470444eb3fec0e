//! Resumable streams of sessions: the messages of an outbox are numbered and stored, so that they outlive the responses
//! that carry them.

pub(super) mod body;
pub(super) mod event_store;
pub(super) mod sse_frame;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use linchpin_jsonrpc::{Outbox, TakeOutcome};
use tokio::runtime::Handle;

use self::event_store::{EventStore, StoredEvent};
use self::sse_frame::{messages, write_event};
use super::super::spawn;
use super::sessions::id::SessionKey;
use crate::lock::lock;

/// Number of the standalone stream, which belongs to no request.
pub(super) const STANDALONE: u32 = 0;

/// SSE stream of a session, which a client can resume.
pub(in crate::server) struct SessionStream {
    number: u32,
    outbox: Arc<Outbox>,
    state: Mutex<StreamState>,
    retention: StreamRetention,
}

/// Where the events of a resumable stream are stored, and for which session.
pub(super) struct StreamRetention {
    pub(super) store: Arc<dyn EventStore>,
    pub(super) session: SessionKey,
    /// Whether the stream starts with an event to resume from, so that the server may close its response early.
    pub(super) is_primed: bool,
}

#[derive(Default)]
struct StreamState {
    /// Number before the first event of the stream.
    first: u64,
    /// Number of the last event of the stream.
    last: u64,
    /// Number of the HTTP response that currently carries the stream. Earlier ones have to end.
    response_number: u64,
    attached: bool,
    /// Whether the last message of the stream was taken.
    done: bool,
    /// Whether the stream can no longer be resumed.
    closed: bool,
}

impl SessionStream {
    /// Creates a stream whose first event has the number after `last`.
    pub(super) fn new(number: u32, last: u64, outbox: Arc<Outbox>, retention: StreamRetention) -> Arc<Self> {
        let state = Mutex::new(StreamState { first: last, last, ..StreamState::default() });
        Arc::new(SessionStream { number, outbox, state, retention })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Returns whether the SSE stream starts with an event from which the client can resume.
    pub(super) fn is_primed(&self) -> bool {
        self.retention.is_primed
    }

    pub(in crate::server) fn is_attached(&self) -> bool {
        lock(&self.state).attached
    }

    pub(super) fn is_done(&self) -> bool {
        lock(&self.state).done
    }

    /// Returns the number of the last event of the stream.
    pub(super) fn last(&self) -> u64 {
        lock(&self.state).last
    }

    /// Returns whether the event `number` of the stream was sent, or is the one before the first.
    pub(super) fn contains_event(&self, number: u64) -> bool {
        let state = lock(&self.state);
        (state.first..=state.last).contains(&number)
    }

    /// Returns whether a client that has seen `number` and gets `missed` can continue without a gap.
    pub(super) fn is_contiguous(&self, number: u64, missed: &[StoredEvent]) -> bool {
        is_gapless(number, missed) && missed.last().map_or(number, |event| event.number) == self.last()
    }

    /// Numbers and stores the messages of the stream; calls `on_event` with every one.
    fn number_events(&self, state: &mut StreamState, lines: &[u8], mut on_event: impl FnMut(u64, &[u8])) {
        for message in messages(lines) {
            state.last += 1;
            if !state.closed {
                let event = StoredEvent { number: state.last, message: message.into() };
                self.retention.store.store(&self.retention.session, self.number, event);
            }
            on_event(state.last, message);
        }
    }

    /// Appends messages to `out` as numbered events of the stream.
    pub(super) fn append(&self, lines: &[u8], out: &mut Vec<u8>) {
        let state = &mut *lock(&self.state);
        self.number_events(state, lines, |number, message| {
            write_event(Some((self.number, number)), message, out);
        });
    }

    /// Appends the content of the outbox to `out` as numbered events, with `buffer` as working memory; `None` if
    /// another response carries the stream.
    pub(super) fn take(
        &self,
        response_number: u64,
        cx: &Context<'_>,
        buffer: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<Poll<TakeOutcome>> {
        // Hold the lock until all messages are numbered: a response that takes over must know what was sent before.
        let state = &mut *lock(&self.state);
        if state.response_number != response_number {
            return None;
        }
        let found = self.outbox.poll_take(buffer, cx);
        self.number_events(state, buffer, |number, message| {
            write_event(Some((self.number, number)), message, out);
        });
        Some(found)
    }

    /// Records that the last message of the stream was taken.
    pub(super) fn finish(&self) {
        lock(&self.state).done = true;
    }

    /// Attaches a new HTTP response to the stream; the response that carried it before ends.
    pub(super) fn attach(&self) -> u64 {
        self.attach_if(|_| true).unwrap_or_default()
    }

    /// Takes over the stream if no response carries it, and returns the number of the new response.
    pub(super) fn attach_if_detached(&self) -> Option<u64> {
        self.attach_if(|state| !state.attached)
    }

    fn attach_if(&self, may: impl FnOnce(&StreamState) -> bool) -> Option<u64> {
        let mut state = lock(&self.state);
        if !may(&state) {
            return None;
        }
        state.response_number += 1;
        state.attached = true;
        let response_number = state.response_number;
        drop(state);
        self.outbox.wake_poller();
        Some(response_number)
    }

    /// Detaches the response with this number from the stream. From now on messages are stored for resumption. The
    /// standalone stream needs no help: its outbox is small and waits for the next response.
    pub(super) fn detach(self: Arc<Self>, response_number: u64) {
        {
            let mut state = lock(&self.state);
            if state.response_number != response_number {
                return;
            }
            state.attached = false;
            if state.done || self.number == STANDALONE {
                return;
            }
        }
        if let Ok(runtime) = Handle::try_current() {
            spawn(&runtime, self.store_detached(response_number));
        }
    }

    /// Moves messages from the outbox to the event store while no HTTP response carries the stream.
    async fn store_detached(self: Arc<Self>, response_number: u64) {
        let mut lines = Vec::new();
        std::future::poll_fn(|cx| {
            loop {
                lines.clear();
                let mut state = lock(&self.state);
                if state.response_number != response_number {
                    return Poll::Ready(());
                }
                let Poll::Ready(found) = self.outbox.poll_take(&mut lines, cx) else { return Poll::Pending };
                self.number_events(&mut state, &lines, |_, _| ());
                if found == TakeOutcome::Last {
                    state.done = true;
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    /// Closes the stream; it can no longer be resumed.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.outbox.mark_complete();
    }
}

/// Returns whether the events continue after `number` without a gap.
pub(super) fn is_gapless(number: u64, missed: &[StoredEvent]) -> bool {
    missed.iter().zip(number.saturating_add(1)..).all(|(event, expected)| event.number == expected)
}
