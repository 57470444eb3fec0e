//! Streams of sessions: the messages of an outbox, numbered and kept, so that they outlive the responses that carry
//! them.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use linchpin_jsonrpc::{Outbox, Taken};
use tokio::runtime::Handle;

use super::super::start;
use super::events::{EventStore, KeptEvent};
use super::frame::{messages, write_event};
use super::key::SessionKey;
use crate::sync::lock;

/// The number of the stream that belongs to no request.
pub(super) const STANDALONE: u32 = 0;

/// One stream of a session.
pub(super) struct Stream {
    number: u32,
    outbox: Arc<Outbox>,
    state: Mutex<State>,
    kept: Keeping,
}

/// How a stream is kept for its client to come back.
pub(super) struct Keeping {
    pub(super) store: Arc<dyn EventStore>,
    pub(super) session: SessionKey,
    /// Whether it begins with an event to come back from, so that it can be let go on purpose.
    pub(super) is_primed: bool,
}

#[derive(Default)]
struct State {
    /// The number before the first event, and that of the last one.
    first: u64,
    last: u64,
    /// Which response carries the stream now. Earlier ones have to end.
    carrier: u64,
    attached: bool,
    /// The last message was handed out.
    done: bool,
    /// Nobody may come back to it.
    closed: bool,
}

impl Stream {
    /// A stream whose events are numbered from after `last`.
    pub(super) fn new(number: u32, last: u64, outbox: Arc<Outbox>, kept: Keeping) -> Arc<Self> {
        let state = Mutex::new(State { first: last, last, ..State::default() });
        Arc::new(Stream { number, outbox, state, kept })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Whether it begins with an event to come back from.
    pub(super) fn is_primed(&self) -> bool {
        self.kept.is_primed
    }

    pub(super) fn is_attached(&self) -> bool {
        lock(&self.state).attached
    }

    pub(super) fn is_done(&self) -> bool {
        lock(&self.state).done
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        lock(&self.state).last
    }

    /// Whether an event of this number was sent, or the next one is the first.
    pub(super) fn has_sent(&self, number: u64) -> bool {
        let state = lock(&self.state);
        (state.first..=state.last).contains(&number)
    }

    /// Whether a client that has seen `number` can go on with what comes next, if it gets `missed`.
    pub(super) fn joins(&self, number: u64, missed: &[KeptEvent]) -> bool {
        is_gapless(number, missed) && missed.last().map_or(number, |event| event.number) == self.last()
    }

    /// Numbers messages and keeps them; `each` takes them one by one.
    fn number_events(&self, state: &mut State, lines: &[u8], mut each: impl FnMut(u64, &[u8])) {
        for message in messages(lines) {
            state.last += 1;
            if !state.closed {
                let event = KeptEvent { number: state.last, message: message.into() };
                self.kept.store.keep(&self.kept.session, self.number, event);
            }
            each(state.last, message);
        }
    }

    /// Appends messages, as events, to `out`.
    pub(super) fn append(&self, lines: &[u8], out: &mut Vec<u8>) {
        let state = &mut *lock(&self.state);
        self.number_events(state, lines, |number, message| {
            write_event(Some((self.number, number)), message, out);
        });
    }

    /// As [`Self::append`], of what is in the outbox, through `room`; `None` when another response has the stream.
    pub(super) fn take(
        &self,
        turn: u64,
        cx: &Context<'_>,
        room: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<Poll<Taken>> {
        // Locked until all is numbered: whoever takes the stream over knows what was sent before.
        let state = &mut *lock(&self.state);
        if state.carrier != turn {
            return None;
        }
        let found = self.outbox.poll_take(room, cx);
        self.number_events(state, room, |number, message| {
            write_event(Some((self.number, number)), message, out);
        });
        Some(found)
    }

    /// The last message was handed out.
    pub(super) fn finish(&self) {
        lock(&self.state).done = true;
    }

    /// Takes the stream over: what carried it ends.
    pub(super) fn attach(&self) -> u64 {
        self.attach_if(|_| true).unwrap_or_default()
    }

    /// As [`Self::attach`]; `None` when it is carried already.
    pub(super) fn attach_first(&self) -> Option<u64> {
        self.attach_if(|state| !state.attached)
    }

    fn attach_if(&self, may: impl FnOnce(&State) -> bool) -> Option<u64> {
        let mut state = lock(&self.state);
        if !may(&state) {
            return None;
        }
        state.carrier += 1;
        state.attached = true;
        let carrier = state.carrier;
        drop(state);
        self.outbox.nudge();
        Some(carrier)
    }

    /// The response that had this turn is gone. What comes now is kept for the client to come back; the stream that
    /// belongs to no request needs no help, since its outbox is small and waits for the next response.
    pub(super) fn detach(self: Arc<Self>, turn: u64) {
        {
            let mut state = lock(&self.state);
            if state.carrier != turn {
                return;
            }
            state.attached = false;
            if state.done || self.number == STANDALONE {
                return;
            }
        }
        if let Ok(runtime) = Handle::try_current() {
            start(&runtime, self.keep_rest(turn));
        }
    }

    /// Keeps what is sent while nobody carries the stream.
    async fn keep_rest(self: Arc<Self>, turn: u64) {
        let mut lines = Vec::new();
        std::future::poll_fn(|cx| {
            loop {
                lines.clear();
                let mut state = lock(&self.state);
                if state.carrier != turn {
                    return Poll::Ready(());
                }
                let Poll::Ready(found) = self.outbox.poll_take(&mut lines, cx) else { return Poll::Pending };
                self.number_events(&mut state, &lines, |_, _| ());
                if found == Taken::Last {
                    state.done = true;
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    /// Lets go of a stream that nobody may come back to.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.outbox.complete();
    }
}

/// Whether events follow on `number` without one missing.
pub(super) fn is_gapless(number: u64, missed: &[KeptEvent]) -> bool {
    missed.iter().zip(number.saturating_add(1)..).all(|(event, expected)| event.number == expected)
}
