//! Set of background tasks that continue when their callers stop waiting, and are awaited at shutdown.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

use crate::error::{Error, Result};
use crate::lock::lock;

/// Time limit for aborted futures to be dropped by their callers.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Set of background tasks that a shutdown awaits or aborts.
pub(crate) struct TaskSet {
    /// Tasks of the set; `None` after the shutdown.
    tasks: Mutex<Option<JoinSet<()>>>,
    attended: Arc<AttendedFutures>,
}

/// Futures of the set that are polled by their callers.
#[derive(Default)]
struct AttendedFutures {
    count: AtomicUsize,
    /// Notified when none is left.
    none_left: Notify,
    /// Notified to abort all of them.
    abort: Arc<Notify>,
}

impl AttendedFutures {
    async fn wait_until_none(&self) {
        loop {
            let none_left = self.none_left.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

/// Guard that counts a future of the set until it is dropped.
struct AttendedGuard(Arc<AttendedFutures>);

impl Drop for AttendedGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

impl Default for TaskSet {
    fn default() -> Self {
        TaskSet { tasks: Mutex::new(Some(JoinSet::new())), attended: Arc::default() }
    }
}

impl TaskSet {
    /// Spawns a task that the set tracks, so that shutdown waits for it. After the shutdown it is dropped instead.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(set) = &mut *lock(&self.tasks) {
            while set.try_join_next().is_some() {} // removes finished tasks
            set.spawn(work);
        }
    }

    /// Returns a future that its caller polls, without a task of its own. If the caller drops it before it has finished,
    /// it continues in a task of the set. Its output is `None` if it was aborted.
    pub(crate) fn attend<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> DetachOnDrop<T> {
        if lock(&self.tasks).is_none() {
            return DetachOnDrop { tasks: self.clone(), state: DetachState::Finished(None) };
        }
        let attended = self.attended.clone();
        attended.count.fetch_add(1, Ordering::AcqRel);
        let (abort, guard) = (attended.abort.clone().notified_owned(), AttendedGuard(attended));
        let work = Box::pin(async move {
            let _guard = guard;
            tokio::select! {
                biased;
                done = work => Some(done),
                () = abort => None,
            }
        });
        DetachOnDrop { tasks: self.clone(), state: DetachState::Running(work) }
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
        self.finish_attended(until).await;
        loop {
            let set = lock(&self.tasks).as_mut().map(std::mem::take);
            let Some(mut set) = set.filter(|set| !set.is_empty()) else { return };
            let all = async { while set.join_next().await.is_some() {} };
            if timeout_at(until, all).await.is_err() {
                set.shutdown().await;
                return;
            }
        }
    }

    async fn finish_attended(&self, until: Instant) {
        if timeout_at(until, self.attended.wait_until_none()).await.is_err() {
            self.attended.abort.notify_waiters();
            // A caller that does not poll its future keeps it.
            let _ = timeout(ABORT_TIMEOUT, self.attended.wait_until_none()).await;
        }
    }

    /// Waits for all tasks like [`Self::finish`], and rejects further tasks.
    pub(crate) async fn shutdown(&self, timeout: Duration) {
        self.finish(timeout).await;
        let last = lock(&self.tasks).take();
        if let Some(mut set) = last {
            set.shutdown().await;
        }
    }
}

/// Future that is polled by its caller and, if the caller drops it early, continues in a task of its set.
pub(crate) struct DetachOnDrop<T: Send + 'static> {
    tasks: Arc<TaskSet>,
    state: DetachState<T>,
}

enum DetachState<T> {
    Running(Pin<Box<dyn Future<Output = Option<T>> + Send>>),
    /// `None` after the output was returned.
    Finished(Option<T>),
}

impl<T: Send + Unpin + 'static> DetachOnDrop<T> {
    /// Polls the future without taking its output.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        if let DetachState::Running(work) = &mut self.state
            && let Poll::Ready(output) = work.as_mut().poll(cx)
        {
            self.state = DetachState::Finished(output);
        }
    }
}

impl<T: Send + Unpin + 'static> Future for DetachOnDrop<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.advance(cx);
        match &mut self.state {
            DetachState::Running(_) => Poll::Pending,
            DetachState::Finished(output) => Poll::Ready(output.take()),
        }
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let DetachState::Running(work) = std::mem::replace(&mut self.state, DetachState::Finished(None)) {
            self.tasks.spawn(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test(start_paused = true)]
    async fn an_attended_future_continues_without_its_caller() {
        let tasks = Arc::new(TaskSet::default());
        let mut finished = tasks.attend(async { 5 });
        finished.advance(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(finished.await, Some(5));
        let (go, wait) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut dropped = tasks.attend(async move {
            wait.await.unwrap();
            done.send(()).unwrap();
        });
        dropped.advance(&mut Context::from_waker(std::task::Waker::noop()));
        drop(dropped);
        go.send(()).unwrap();
        tasks.finish(Duration::from_secs(5)).await;
        assert_eq!(is_done.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attended_future_is_awaited_and_aborted_at_shutdown() {
        let tasks = Arc::new(TaskSet::default());
        let (limit, pause) = (Duration::from_secs(5), tokio::time::sleep(Duration::from_secs(2)));
        let (attended, ()) = tokio::join!(biased; tasks.attend(pause), tasks.finish(limit));
        assert_eq!(attended, Some(()));
        let (attended, ()) =
            tokio::join!(biased; tasks.attend(std::future::pending::<()>()), tasks.shutdown(limit));
        assert_eq!(attended, None);
        assert_eq!(tasks.attend(async { 5 }).await, None);
    }
}
