//! How many wait for a token.

use tokio::sync::watch;

/// Counts one who waits, for as long as it lives.
pub(super) struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    pub(super) fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
