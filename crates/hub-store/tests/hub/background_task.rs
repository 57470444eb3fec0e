//! Background tasks of tests.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Waits for a future, at most 30 s.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), what).await.unwrap()
}

/// Task that runs in the background of a test.
pub(crate) struct Aside<T>(JoinSet<T>);

impl<T: Send + 'static> Aside<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        let mut set = JoinSet::new();
        set.spawn(work);
        Aside(set)
    }

    /// Waits for the result of the task.
    pub(crate) async fn done(mut self) -> T {
        soon(self.0.join_next()).await.unwrap().unwrap()
    }
}
