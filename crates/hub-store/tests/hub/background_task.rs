//! Background tasks of tests.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Waits for a future, at most 30 s.
pub(crate) async fn within_timeout<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), what).await.unwrap()
}

/// Task that runs in the background of a test.
pub(crate) struct BackgroundTask<T>(JoinSet<T>);

impl<T: Send + 'static> BackgroundTask<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        let mut set = JoinSet::new();
        set.spawn(work);
        BackgroundTask(set)
    }

    /// Waits for the result of the task.
    pub(crate) async fn join(mut self) -> T {
        within_timeout(self.0.join_next()).await.unwrap().unwrap()
    }
}
