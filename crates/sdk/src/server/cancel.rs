//! The end of one request: answered or cancelled, whichever comes first.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

const RUNNING: u8 = 0;
const ANSWERED: u8 = 1;
const CANCELLED: u8 = 2;

/// Whether a request is still to be answered. A handler that watches for its cancellation may finish in its own
/// way; one that does not is dropped where it waits.
#[derive(Default)]
pub(crate) struct Cancel {
    state: AtomicU8,
    watched: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Cancels the request, unless it has ended already.
    pub(crate) fn cancel(&self) {
        self.cancel_with(|| ());
    }

    /// Cancels the request, unless it has ended already, and says something before anybody can notice.
    pub(crate) fn cancel_with(&self, say: impl FnOnce()) {
        if self.end(CANCELLED) {
            say();
            self.notify.notify_waiters();
        }
    }

    /// Claims the right to answer; `false` when the request has ended already.
    pub(crate) fn answer(&self) -> bool {
        self.end(ANSWERED)
    }

    /// The call goes on with another request: it is still to be answered. `false` when it was cancelled.
    pub(crate) fn reopen(&self) -> bool {
        self.state.compare_exchange(ANSWERED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end(&self, state: u8) -> bool {
        self.state.compare_exchange(RUNNING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the request is answered or cancelled: nothing more may be sent for it.
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING
    }

    fn has_been_cancelled(&self) -> bool {
        self.state.load(Ordering::Acquire) == CANCELLED
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.watched.store(true, Ordering::Relaxed);
        self.has_been_cancelled()
    }

    /// For the handler: it takes care of the end itself.
    pub(crate) async fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
        self.cancelled().await;
    }

    async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        notified.as_mut().enable();
        if !self.has_been_cancelled() {
            notified.await;
        }
    }

    /// Ends when the request was cancelled and its handler does not watch for that.
    pub(crate) async fn given_up(&self) {
        self.cancelled().await;
        if self.watched.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}
