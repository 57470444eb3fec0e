//! Guard that counts the requests waiting for an OAuth token of an account.

use tokio::sync::watch;

/// Guard that counts one request that waits for an OAuth token, while it exists.
pub(in crate::auth) struct WaiterCount<'a>(&'a watch::Sender<usize>);

impl<'a> WaiterCount<'a> {
    pub(in crate::auth) fn new(counter: &'a watch::Sender<usize>) -> Self {
        counter.send_modify(|count| *count += 1);
        WaiterCount(counter)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
