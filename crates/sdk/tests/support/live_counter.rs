//! Counter of live instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A counted instance.
pub(crate) struct LiveCounter(Arc<AtomicUsize>);

impl LiveCounter {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        LiveCounter(count.clone())
    }
}

impl Drop for LiveCounter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
