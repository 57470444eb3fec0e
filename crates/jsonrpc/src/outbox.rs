//! Bounded in-memory queue of outgoing lines of one connection.
//!
//! Senders append whole lines; the writer of the connection takes all of them at once. If the peer reads slowly, the
//! queue fills up: senders that can wait do so in [`Outbox::wait_for_space`], and [`Outbox::try_send`] rejects lines that may be
//! lost, such as notifications.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// Queue of the outgoing messages of one connection, one per line. [`Self::send`] appends even to a full queue.
pub struct Outbox {
    state: Mutex<OutboxState>,
    high_water: usize,
    space_available: Notify,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct OutboxState {
    lines: Vec<u8>,
    closed: bool,
    /// Whether the last line has been appended to the queue.
    complete: bool,
    /// Delay after which the reader should come back for further lines, if it has to close the stream.
    reconnect_after: Option<Duration>,
    /// Waker of the task that polls the queue for lines.
    waker: Option<Waker>,
}

/// Result of [`Outbox::poll_take`]: whether more lines may follow those that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    /// Lines were taken; more may follow.
    Lines,
    /// The remaining lines, if any, were taken; no more will follow.
    Last,
    /// The queued lines, if any, were taken, and the reader should close the stream. The stream is to be closed, and
    /// further lines are to be fetched after this delay.
    Reconnect(Duration),
}

impl Outbox {
    /// Creates a queue that is full above `high_water` bytes. `wake` is called after [`Self::send`] or
    /// [`Self::try_send`] has appended a line. It must not block.
    pub fn new(high_water: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let outbox = Self::without_callback(high_water);
        outbox.on_send(wake);
        outbox
    }

    /// Creates a queue without a wake callback; set it with [`Self::on_send`].
    pub fn without_callback(high_water: usize) -> Self {
        Self { state: Mutex::default(), high_water, space_available: Notify::new(), wake: OnceLock::new() }
    }

    /// Creates a queue for [`Self::poll_take`] with an initial capacity of `capacity` bytes.
    pub fn with_capacity(high_water: usize, capacity: usize) -> Self {
        let outbox = Self::without_callback(high_water);
        outbox.state().lines = Vec::with_capacity(capacity);
        outbox
    }

    /// Sets the callback that is called when a line is queued, unless one is set already. It is called immediately if
    /// the queue is not empty.
    pub fn on_send(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
        if !self.is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        match self.wake.get() {
            Some(wake) => wake(),
            None => self.wake_poller(),
        }
    }

    /// Wakes the task that polls the queue for lines.
    pub fn wake_poller(&self) {
        let waker = self.state().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a message and its newline without waking the writer. For the writer itself, which takes the lines right
    /// afterwards.
    pub fn append(&self, message: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if !state.closed {
            message(&mut state.lines);
            state.lines.push(b'\n');
        }
    }

    /// Appends a message and its newline, and wakes the writer.
    pub fn send(&self, message: impl FnOnce(&mut Vec<u8>)) {
        self.append(message);
        self.wake();
    }

    /// Appends the last message, and marks the queue as complete.
    pub fn send_last(&self, message: impl FnOnce(&mut Vec<u8>)) {
        {
            // Both under one lock: a reader that takes the message must see that it is the last one.
            let mut state = self.state();
            if !state.closed {
                message(&mut state.lines);
                state.lines.push(b'\n');
            }
            state.complete = true;
        }
        self.wake();
    }

    /// Marks the queue as complete: no more messages will follow.
    pub fn mark_complete(&self) {
        self.state().complete = true;
        self.wake();
    }

    /// Requests the reader of the queue to end the stream, so that the client reopens it after `delay`. A stream that
    /// cannot be resumed stays open.
    pub fn request_reconnect(&self, delay: Duration) {
        self.state().reconnect_after = Some(delay);
        self.wake();
    }

    /// Appends a message and wakes the writer, unless the queue is full or closed. Returns whether it was appended.
    pub fn try_send(&self, message: impl FnOnce(&mut Vec<u8>)) -> bool {
        {
            let state = self.state();
            if state.closed || state.lines.len() > self.high_water {
                return false;
            }
        }
        self.send(message);
        true
    }

    /// Reports whether the queue is above its high-water mark.
    pub fn is_full(&self) -> bool {
        self.state().lines.len() > self.high_water
    }

    /// Reports whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.state().lines.is_empty()
    }

    /// Waits until the queue is no longer full.
    pub async fn wait_for_space(&self) {
        loop {
            let mut notified = std::pin::pin!(self.space_available.notified());
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

    /// Moves all queued lines into `output`, which must be empty. The queue reuses the memory of `output`.
    pub fn take(&self, output: &mut Vec<u8>) {
        let mut state = self.state();
        let was_full = state.lines.len() > self.high_water;
        std::mem::swap(&mut state.lines, output);
        drop(state);
        if was_full {
            self.space_available.notify_waiters();
        }
    }

    /// Takes queued lines like [`Self::take`], for tasks that poll instead of using [`Self::on_send`]. Pending while
    /// the queue is open and empty and no hang-up is requested.
    pub fn poll_take(&self, output: &mut Vec<u8>, cx: &Context<'_>) -> Poll<TakeOutcome> {
        let mut state = self.state();
        let found = if state.complete || state.closed {
            TakeOutcome::Last // no lines remain to be fetched later
        } else if let Some(delay) = state.reconnect_after.take() {
            TakeOutcome::Reconnect(delay)
        } else if !state.lines.is_empty() {
            TakeOutcome::Lines
        } else {
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        };
        drop(state);
        self.take(output);
        Poll::Ready(found)
    }

    /// Closes the queue because the peer is gone: queued and later lines are dropped.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.lines = Vec::new();
        drop(state);
        self.space_available.notify_waiters();
        self.wake(); // the reader of the queue must see that it is closed
    }

    /// Reports whether no further message will be queued: the last one was appended, or the peer is gone.
    pub fn is_finished(&self) -> bool {
        let state = self.state();
        state.complete || state.closed
    }

    /// Reports whether the peer is gone.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_text(outbox: &Outbox) -> String {
        let mut lines = Vec::new();
        outbox.take(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_makes_wait() {
        let outbox = Outbox::new(4, || ());
        outbox.send(|out| out.extend_from_slice(b"12345"));
        assert!(!outbox.try_send(|out| out.push(b'x')));
        let waiting = outbox.wait_for_space();
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_poll(waiting.as_mut()).is_pending());
        assert_eq!(take_text(&outbox), "12345\n");
        waiting.await;
        assert!(outbox.try_send(|out| out.push(b'x')));
        outbox.close();
        assert_eq!(take_text(&outbox), "");
        assert!(!outbox.try_send(|out| out.push(b'x')));
        outbox.wait_for_space().await;
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }
}
