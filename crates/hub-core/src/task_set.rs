//! Set of background tasks that continue when their callers stop waiting, and are awaited at shutdown.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::error::{Error, Result};
use crate::lock::lock;

/// Set of background tasks that a shutdown awaits or aborts; `None` after the shutdown.
pub(crate) struct TaskSet(Mutex<Option<JoinSet<()>>>);

impl Default for TaskSet {
    fn default() -> Self {
        TaskSet(Mutex::new(Some(JoinSet::new())))
    }
}

impl TaskSet {
    /// Spawns a task that the set tracks, so that shutdown waits for it. After the shutdown it is dropped instead.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(set) = &mut *lock(&self.0) {
            while set.try_join_next().is_some() {} // removes finished tasks
            set.spawn(work);
        }
    }

    /// Runs a future to completion in a task of the set, even if the caller stops waiting for the result. Fails after
    /// the shutdown.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, done) = oneshot::channel();
        let work = async move {
            let _ = sender.send(work.await); // the caller may have stopped waiting
        };
        self.spawn(work.in_current_span());
        done.await.unwrap_or_else(|_| Err(Error::shutting_down()))
    }

    /// Waits until all tasks of the set have finished, including those spawned concurrently. After the timeout the rest
    /// is aborted.
    pub(crate) async fn finish(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        loop {
            let set = lock(&self.0).as_mut().map(std::mem::take);
            let Some(mut set) = set.filter(|set| !set.is_empty()) else { return };
            let all = async { while set.join_next().await.is_some() {} };
            if timeout_at(until, all).await.is_err() {
                set.shutdown().await;
                return;
            }
        }
    }

    /// Waits for all tasks like [`Self::finish`], and rejects further tasks.
    pub(crate) async fn shutdown(&self, timeout: Duration) {
        self.finish(timeout).await;
        let last = lock(&self.0).take();
        if let Some(mut set) = last {
            set.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_finishes_without_its_caller() {
        let (tasks, (go, wait)) = (TaskSet::default(), oneshot::channel::<()>());
        let (done, mut is_done) = oneshot::channel();
        let work = async move {
            wait.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        };
        tokio::select! {
            biased;
            _ = tasks.run(work) => panic!("the task waits for the test"),
            () = std::future::ready(()) => {}
        }
        go.send(()).unwrap();
        tasks.finish(Duration::from_secs(5)).await;
        assert_eq!(is_done.try_recv(), Ok(()));
        let held = Arc::new(());
        let guard = held.clone();
        tasks.spawn(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        tasks.finish(Duration::from_secs(5)).await;
        assert_eq!(Arc::strong_count(&held), 1, "the task was aborted");
        assert_eq!(tasks.run(async { Ok(1) }).await, Ok(1), "further tasks can be spawned");
        tasks.shutdown(Duration::ZERO).await;
        assert_eq!(tasks.run(async { Ok(1) }).await, Err(Error::shutting_down()));
    }
}
