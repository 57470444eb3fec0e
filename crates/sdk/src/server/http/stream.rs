//! Streams of events: messages of an outbox, framed, numbered where they can be resumed.

use std::fmt;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linchpin_jsonrpc::{Outbox, Taken};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::super::start;
use super::events::{EventStore, KeptEvent};
use super::key::SessionKey;
use crate::sync::lock;

/// How long a client should wait before it comes back to a stream that was cut.
const COME_BACK: Duration = Duration::from_secs(1);
/// The number of the stream that belongs to no request.
pub(super) const STANDALONE: u32 = 0;

/// One stream of a session: it outlives the HTTP responses that carry it.
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
    /// The numbers before the first event, and of the last one.
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

    pub(super) fn is_attached(&self) -> bool {
        lock(&self.state).attached
    }

    fn is_primed(&self) -> bool {
        self.kept.is_primed
    }

    pub(super) fn is_done(&self) -> bool {
        lock(&self.state).done
    }

    /// Whether an event of this number can have been sent on it, or it began after it.
    pub(super) fn has_sent(&self, number: u64) -> bool {
        let state = lock(&self.state);
        (state.first..=state.last).contains(&number)
    }

    /// Whether a client that has seen `number` can go on with what comes next, if it gets `missed`.
    fn joins(&self, number: u64, missed: &[KeptEvent]) -> bool {
        let last = lock(&self.state).last;
        is_gapless(number, missed) && missed.last().map_or(number, |event| event.number) == last
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

    /// Takes the stream over: what carried it ends.
    fn attach(&self) -> u64 {
        self.attach_if(|_| true).unwrap_or_default()
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
    fn detach(self: Arc<Self>, turn: u64) {
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
    missed.iter().zip(number + 1..).all(|(event, expected)| event.number == expected)
}

fn messages(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn frame(lines: &[u8], out: &mut Vec<u8>) {
    messages(lines).for_each(|message| write_event(None, message, out));
}

/// The id of an event: its stream and its number.
fn write_id(stream: u32, number: u64, out: &mut Vec<u8>) {
    let _ = writeln!(out, "id: {stream}-{number}"); // writing to memory cannot fail
}

/// Reads the id of an event.
pub(super) fn parse_id(text: &str) -> Option<(u32, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

pub(super) fn write_event(id: Option<(u32, u64)>, message: &[u8], out: &mut Vec<u8>) {
    if let Some((stream, number)) = id {
        write_id(stream, number, out);
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
}

/// What is done when the client is gone.
pub(super) type OnGone = Box<dyn FnOnce() + Send + Sync>;

/// A response that carries a stream.
pub(super) struct StreamBody {
    outbox: Arc<Outbox>,
    /// The stream that can be resumed, and the turn that this response has in it.
    resumable: Option<(Arc<Stream>, u64)>,
    /// What is sent before anything else.
    first: Vec<u8>,
    /// Nothing comes after `first`.
    ends: bool,
    taken: Vec<u8>,
    quiet: Duration,
    keep_alive: Pin<Box<Sleep>>,
    on_gone: Option<OnGone>,
}

impl StreamBody {
    /// A stream that is gone with its response.
    pub(super) fn new(outbox: Arc<Outbox>, quiet: Duration) -> Self {
        StreamBody {
            outbox,
            resumable: None,
            first: Vec::new(),
            ends: false,
            taken: Vec::new(),
            quiet,
            keep_alive: Box::pin(tokio::time::sleep(quiet)),
            on_gone: None,
        }
    }

    /// A stream that a client can come back to. Whatever carried it before ends.
    pub(super) fn resumable(stream: Arc<Stream>, quiet: Duration) -> Self {
        let turn = stream.attach();
        Self::carrying(stream, turn, quiet)
    }

    /// As [`Self::resumable`]; `None` when it is carried already.
    pub(super) fn only(stream: Arc<Stream>, quiet: Duration) -> Option<Self> {
        let turn = stream.attach_if(|state| !state.attached)?;
        Some(Self::carrying(stream, turn, quiet))
    }

    fn carrying(stream: Arc<Stream>, turn: u64, quiet: Duration) -> Self {
        let mut body = Self::new(stream.outbox.clone(), quiet);
        body.resumable = Some((stream, turn));
        body
    }

    /// Events of a stream that is over.
    pub(super) fn finished(stream: u32, missed: &[KeptEvent], quiet: Duration) -> Self {
        let mut body = Self::new(Arc::new(Outbox::unattended(0)), quiet);
        body.ends = true;
        missed
            .iter()
            .for_each(|event| write_event(Some((stream, event.number)), &event.message, &mut body.first));
        body
    }

    /// Begins with an event that only has an id, where there are such, so that the client can come back from the
    /// beginning.
    pub(super) fn primed(mut self) -> Self {
        if let Some((stream, _)) = self.resumable.as_ref().filter(|(stream, _)| stream.is_primed()) {
            let last = lock(&stream.state).last;
            write_id(stream.number, last, &mut self.first);
            self.first.extend_from_slice(b"data:\n\n");
        }
        self
    }

    /// Begins with messages that were taken from the outbox already.
    pub(super) fn with_lines(mut self, lines: &[u8], ends: bool) -> Self {
        match &self.resumable {
            Some((stream, _)) => {
                let id = stream.number;
                let write =
                    |number, message: &[u8]| write_event(Some((id, number)), message, &mut self.first);
                stream.number_events(&mut lock(&stream.state), lines, write);
            }
            None => frame(lines, &mut self.first),
        }
        if ends {
            self.finish();
        }
        self
    }

    /// Begins with what the client missed; `None` if that is no longer known.
    pub(super) fn with_missed(mut self, number: u64, missed: &[KeptEvent]) -> Option<Self> {
        let (stream, _) = self.resumable.as_ref()?;
        if !stream.joins(number, missed) {
            return None;
        }
        let number = stream.number;
        missed
            .iter()
            .for_each(|event| write_event(Some((number, event.number)), &event.message, &mut self.first));
        Some(self)
    }

    /// Begins with text of its own.
    pub(super) fn with_text(mut self, text: &str) -> Self {
        self.first.extend_from_slice(text.as_bytes());
        self
    }

    /// Lets the connection go at once, with the wish that the client comes back.
    pub(super) fn hung_up(mut self, pause: Duration) -> Self {
        write_retry(pause, &mut self.first);
        self.ends = true;
        self
    }

    pub(super) fn on_gone(mut self, on_gone: OnGone) -> Self {
        self.on_gone = Some(on_gone);
        self
    }

    fn can_be_let_go(&self) -> bool {
        self.resumable.as_ref().is_some_and(|(stream, _)| stream.is_primed())
    }

    fn finish(&mut self) {
        self.ends = true;
        if let Some((stream, _)) = &self.resumable {
            lock(&stream.state).done = true;
        }
    }

    /// Takes what is there and frames it into `first`; `None` when another response has the stream.
    fn take(&mut self, cx: &Context<'_>) -> Option<Poll<Taken>> {
        self.taken.clear();
        let Some((stream, turn)) = &self.resumable else {
            let found = self.outbox.poll_take(&mut self.taken, cx);
            frame(&self.taken, &mut self.first);
            return Some(found);
        };
        // Locked until all is numbered: whoever takes the stream over knows what was sent before.
        let mut state = lock(&stream.state);
        if state.carrier != *turn {
            return None;
        }
        let found = self.outbox.poll_take(&mut self.taken, cx);
        let id = stream.number;
        let write = |number, message: &[u8]| write_event(Some((id, number)), message, &mut self.first);
        stream.number_events(&mut state, &self.taken, write);
        Some(found)
    }

    /// The next bytes; `None` at the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if !self.first.is_empty() {
                return Poll::Ready(Some(std::mem::take(&mut self.first).into()));
            }
            if self.ends {
                return Poll::Ready(None);
            }
            let Some(found) = self.take(cx) else { return Poll::Ready(None) };
            match found {
                Poll::Ready(Taken::Some) => {}
                Poll::Ready(Taken::Last) => self.finish(),
                Poll::Ready(Taken::HangUp(pause)) if self.can_be_let_go() => {
                    write_retry(pause, &mut self.first);
                    self.ends = true;
                }
                Poll::Ready(Taken::HangUp(_)) => {} // there would be no way back
                Poll::Pending => {
                    if self.keep_alive.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    // Tells those between that the stream lives, and finds out whether the client does.
                    self.first.extend_from_slice(b":\n\n");
                }
            }
            self.keep_alive.as_mut().reset(Instant::now() + self.quiet);
        }
    }
}

fn write_retry(pause: Duration, out: &mut Vec<u8>) {
    let pause = if pause.is_zero() { COME_BACK } else { pause };
    let _ = write!(out, "retry: {}\n\n", pause.as_millis()); // writing to memory cannot fail
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
