//! The cancellation of one request.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Set when the client gives a request up. A handler that watches it may finish in its own way; one that does
/// not is dropped where it waits.
#[derive(Default)]
pub(crate) struct Cancel {
    cancelled: AtomicBool,
    answered: AtomicBool,
    watched: AtomicBool,
    notify: Notify,
}

impl Cancel {
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.watched.store(true, Ordering::Relaxed);
        self.cancelled.load(Ordering::Acquire)
    }

    /// For the handler: it takes care of the end itself.
    pub(crate) async fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
        self.cancelled().await;
    }

    /// For the driver.
    pub(crate) async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        notified.as_mut().enable();
        if !self.cancelled.load(Ordering::Acquire) {
            notified.await;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The request is answered: nothing more may be sent for it.
    pub(crate) fn set_answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// Whether the request is answered or given up.
    pub(crate) fn is_over(&self) -> bool {
        self.answered.load(Ordering::Acquire) || self.has_ended()
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }
}
