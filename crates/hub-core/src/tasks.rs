//! Work that goes on when whoever asked for it has left, and is waited for when the hub ends.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::error::{Error, Result};
use crate::sync::lock;

/// All such work; nothing once the hub has ended.
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Tasks(Mutex::new(Some(JoinSet::new())))
    }
}

impl Tasks {
    /// Starts something. Whoever waits for it sees it dropped if it is too late for that.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(set) = &mut *lock(&self.0) {
            while set.try_join_next().is_some() {} // what is done is forgotten
            set.spawn(work);
        }
    }

    /// Runs work to its end, even if the caller stops waiting for the result. Fails if the hub has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, done) = oneshot::channel();
        let work = async move {
            let _ = sender.send(work.await); // the caller may have left
        };
        self.start(work.in_current_span());
        done.await.unwrap_or_else(|_| Err(Error::ending()))
    }

    /// Waits until all work has finished, including work that starts in the meantime. After `patience` the rest is aborted.
    pub(crate) async fn finish(&self, patience: Duration) {
        let until = Instant::now() + patience;
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

    /// As [`Self::finish`], and starts nothing any more.
    pub(crate) async fn end(&self, patience: Duration) {
        self.finish(patience).await;
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
        let (tasks, (go, wait)) = (Tasks::default(), oneshot::channel::<()>());
        let (done, mut is_done) = oneshot::channel();
        let work = async move {
            wait.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        };
        tokio::select! {
            biased;
            _ = tasks.run(work) => panic!("it waits for the test"),
            () = std::future::ready(()) => {}
        }
        go.send(()).unwrap();
        tasks.finish(Duration::from_secs(5)).await;
        assert_eq!(is_done.try_recv(), Ok(()));
        let held = Arc::new(());
        let own = held.clone();
        tasks.start(async move {
            std::future::pending::<()>().await;
            drop(own);
        });
        tasks.finish(Duration::from_secs(5)).await;
        assert_eq!(Arc::strong_count(&held), 1, "it was aborted in the end");
        assert_eq!(tasks.run(async { Ok(1) }).await, Ok(1), "more can be started");
        tasks.end(Duration::ZERO).await;
        assert_eq!(tasks.run(async { Ok(1) }).await, Err(Error::ending()));
    }
}
