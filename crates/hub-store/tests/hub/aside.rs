//! What goes on while a test does something else.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// What is waited for comes within this time.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), what).await.unwrap()
}

/// Work that was begun.
pub(crate) struct Aside<T>(JoinSet<T>);

impl<T: Send + 'static> Aside<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        let mut set = JoinSet::new();
        set.spawn(work);
        Aside(set)
    }

    /// Waits until it is done.
    pub(crate) async fn done(mut self) -> T {
        soon(self.0.join_next()).await.unwrap().unwrap()
    }
}
