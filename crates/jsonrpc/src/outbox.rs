//! The queue of outgoing lines of one connection: bytes in memory, bounded.
//!
//! Whoever has something to say appends whole lines; whoever owns the connection takes them all at once. When
//! the peer reads slowly the queue fills; then [`Outbox::room`] keeps those waiting who can wait, and lines of
//! those who cannot (notifications nobody must have) are refused by [`Outbox::offer`].

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// Outgoing lines waiting to be written.
pub struct Outbox {
    state: Mutex<State>,
    high_water: usize,
    room: Notify,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    closed: bool,
    /// The last line is there: nothing more will come.
    complete: bool,
    /// The wish that whoever empties the queue lets the line go, and is asked for the rest after this long.
    hang_up: Option<Duration>,
    /// Whom to wake, for those who poll.
    waker: Option<Waker>,
}

/// What [`Outbox::poll_take`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Lines, and more may come.
    Some,
    /// What there was, perhaps nothing: no more will come.
    Last,
    /// What there was, perhaps nothing: the line is to be let go, and the rest fetched after this long.
    HangUp(Duration),
}

impl Outbox {
    /// A queue that counts as full above `high_water` bytes. `wake` is called after lines were added by
    /// [`Self::send`] or [`Self::offer`]; it must not block.
    pub fn new(high_water: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let outbox = Self::unattended(high_water);
        outbox.on_send(wake);
        outbox
    }

    /// A queue that nobody empties before [`Self::on_send`].
    pub fn unattended(high_water: usize) -> Self {
        Self { state: Mutex::default(), high_water, room: Notify::new(), wake: OnceLock::new() }
    }

    /// A queue that is emptied by [`Self::poll_take`], with room for `room` bytes from the beginning.
    pub fn polled(high_water: usize, room: usize) -> Self {
        let outbox = Self::unattended(high_water);
        outbox.state().lines = Vec::with_capacity(room);
        outbox
    }

    /// Says whom to wake; the first one stays. Called at once if something waits already.
    pub fn on_send(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
        if !self.is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        match self.wake.get() {
            Some(wake) => wake(),
            None => self.nudge(),
        }
    }

    /// Has whoever polls look again.
    pub fn nudge(&self) {
        let waker = self.state().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends one message and its newline, without waking anybody: for the owner of the connection, who takes
    /// the lines right after.
    pub fn append(&self, message: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if !state.closed {
            message(&mut state.lines);
            state.lines.push(b'\n');
        }
    }

    /// Appends one message and its newline and wakes the writer.
    pub fn send(&self, message: impl FnOnce(&mut Vec<u8>)) {
        self.append(message);
        self.wake();
    }

    /// Appends the last message of all.
    pub fn conclude(&self, message: impl FnOnce(&mut Vec<u8>)) {
        {
            // Together: whoever sees the message knows that it is the last one.
            let mut state = self.state();
            if !state.closed {
                message(&mut state.lines);
                state.lines.push(b'\n');
            }
            state.complete = true;
        }
        self.wake();
    }

    /// Says that nothing more will come.
    pub fn complete(&self) {
        self.state().complete = true;
        self.wake();
    }

    /// Asks whoever empties the queue to let the line go, and to come back for the rest after `pause`.
    pub fn hang_up(&self, pause: Duration) {
        self.state().hang_up = Some(pause);
        self.wake();
    }

    /// Like [`Self::send`], but refuses (`false`) when the queue is full or closed.
    pub fn offer(&self, message: impl FnOnce(&mut Vec<u8>)) -> bool {
        {
            let state = self.state();
            if state.closed || state.lines.len() > self.high_water {
                return false;
            }
        }
        self.send(message);
        true
    }

    /// Whether more waits than should.
    pub fn is_full(&self) -> bool {
        self.state().lines.len() > self.high_water
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.state().lines.is_empty()
    }

    /// Waits until the queue is no longer full.
    pub async fn room(&self) {
        loop {
            let mut notified = std::pin::pin!(self.room.notified());
            notified.as_mut().enable();
            {
                let state = self.state();
                if state.closed || state.lines.len() <= self.high_water {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Moves all waiting lines into `into`, which must be empty; its memory is used for what comes next.
    pub fn take(&self, into: &mut Vec<u8>) {
        let mut state = self.state();
        let was_full = state.lines.len() > self.high_water;
        std::mem::swap(&mut state.lines, into);
        drop(state);
        if was_full {
            self.room.notify_waiters();
        }
    }

    /// As [`Self::take`], for those who wait by polling instead of being told by [`Self::on_send`]: pending while
    /// there is nothing to tell.
    pub fn poll_take(&self, into: &mut Vec<u8>, cx: &Context<'_>) -> Poll<Taken> {
        let mut state = self.state();
        let found = if state.complete || state.closed {
            Taken::Last // there is nothing to come back for
        } else if let Some(pause) = state.hang_up.take() {
            Taken::HangUp(pause)
        } else if !state.lines.is_empty() {
            Taken::Some
        } else {
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        };
        drop(state);
        self.take(into);
        Poll::Ready(found)
    }

    /// From now on lines are dropped: the peer is gone.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.lines = Vec::new();
        drop(state);
        self.room.notify_waiters();
        self.wake(); // whoever empties the queue learns that nothing more will come
    }

    /// Whether nothing more will leave: the last message was appended, or the peer is gone.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        state.complete || state.closed
    }

    /// Whether the peer is gone.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(outbox: &Outbox) -> String {
        let mut lines = Vec::new();
        outbox.take(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_makes_wait() {
        let outbox = Outbox::new(4, || ());
        outbox.send(|out| out.extend_from_slice(b"12345"));
        assert!(!outbox.offer(|out| out.push(b'x')));
        let waiting = outbox.room();
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_poll(waiting.as_mut()).is_pending());
        assert_eq!(taken(&outbox), "12345\n");
        waiting.await;
        assert!(outbox.offer(|out| out.push(b'x')));
        outbox.close();
        assert_eq!(taken(&outbox), "");
        assert!(!outbox.offer(|out| out.push(b'x')));
        outbox.room().await;
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }
}
