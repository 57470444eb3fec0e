//! Cancellation of one request: it ends by a response or by a cancellation, whichever comes first.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

const RUNNING: u8 = 0;
const RESPONDED: u8 = 1;
const CANCELLED: u8 = 2;

/// Flag of a request that is set once, by its response or by its cancellation, whichever comes first. A handler that
/// observes its cancellation decides itself when to finish; any other handler is dropped at its await point.
#[derive(Default)]
pub(crate) struct Cancel {
    state: AtomicU8,
    is_observed: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Cancels the request, unless it has already ended.
    pub(crate) fn cancel(&self) {
        self.cancel_with(|| ());
    }

    /// Cancels the request, unless it has already ended, and runs `before_notify` before the waiters are notified.
    pub(crate) fn cancel_with(&self, before_notify: impl FnOnce()) {
        if self.end(CANCELLED) {
            before_notify();
            self.notify.notify_waiters();
        }
    }

    /// Claims the right to send the response of the request, so that only one is sent. Returns `false` if the request
    /// has already ended.
    pub(crate) fn claim_response(&self) -> bool {
        self.end(RESPONDED)
    }

    /// Marks the call as running again, because it continues with another request. Returns `false` if it was cancelled.
    pub(crate) fn reopen(&self) -> bool {
        self.state.compare_exchange(RESPONDED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end(&self, state: u8) -> bool {
        self.state.compare_exchange(RUNNING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether the request has its response or was cancelled: no further message may be sent for it.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING
    }

    fn has_been_cancelled(&self) -> bool {
        self.state.load(Ordering::Acquire) == CANCELLED
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_observed.store(true, Ordering::Relaxed);
        self.has_been_cancelled()
    }

    /// Waits until the request is cancelled, for a handler that then decides itself when to finish.
    pub(crate) async fn observe(&self) {
        self.is_observed.store(true, Ordering::Relaxed);
        self.cancelled().await;
    }

    async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        notified.as_mut().enable();
        if !self.has_been_cancelled() {
            notified.await;
        }
    }

    /// Completes when the request was cancelled and its handler does not observe the cancellation.
    pub(crate) async fn cancelled_unobserved(&self) {
        self.cancelled().await;
        if self.is_observed.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}
