//! A task that runs: driven to its end, and its status told to those who want to know.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use linchpin_jsonrpc::write;
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{GetTaskResult, TaskDetail, TaskStatus, TaskStatusParams};
use linchpin_protocol::wire::error_object;
use linchpin_protocol::{Era, Method};
use tokio::sync::Notify;

use super::super::Service;
use super::super::context::Context;
use super::super::request::{Outcome, Work};
use super::store::{TaskOutcome, TaskRecord};
use crate::sync::lock;

/// A task that runs.
pub(crate) struct Running {
    pub(super) context: Context,
    record: Mutex<TaskRecord>,
    /// Notified whenever the status has changed.
    changed: Notify,
}

impl Running {
    pub(super) fn new(context: Context, record: TaskRecord) -> Self {
        Running { context, record: Mutex::new(record), changed: Notify::new() }
    }

    pub(super) fn record(&self) -> TaskRecord {
        lock(&self.record).clone()
    }

    pub(super) fn is_of(&self, principal: Option<&str>) -> bool {
        lock(&self.record).principal.as_deref() == principal
    }

    /// The task as it is now, with its questions.
    pub(super) fn state(&self) -> GetTaskResult {
        let record = self.record();
        let open = || self.context.questions().open(self.context.revision());
        let asks = record.status == TaskStatus::InputRequired;
        let detail = asks.then(|| TaskDetail::InputRequests(open()));
        GetTaskResult { task: record.to_task(), detail, meta: None }
    }

    /// Waits until the task has ended.
    pub(super) async fn ended(&self) -> TaskRecord {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let record = self.record();
            if record.status.is_terminal() {
                return record;
            }
            changed.await;
        }
    }

    /// Gives the task up; `false` when it has ended already.
    pub(super) fn cancel(&self, service: &Service) -> bool {
        let given_up = self.set_status(service, TaskStatus::Cancelled, Some("it was cancelled".into()), None);
        self.context.end().cancel();
        given_up
    }

    /// Changes the status, unless the task has ended.
    fn set_status(
        &self,
        service: &Service,
        status: TaskStatus,
        message: Option<String>,
        outcome: Option<TaskOutcome>,
    ) -> bool {
        let mut record = lock(&self.record);
        if record.status.is_terminal() || (record.status == status && outcome.is_none()) {
            return false;
        }
        record.status = status;
        record.message = message;
        record.outcome = outcome;
        record.updated = service.settings().clock.since_epoch();
        drop(record);
        self.changed.notify_waiters();
        true
    }

    /// Keeps the status, and tells it.
    async fn publish(&self, service: &Service) {
        let record = self.record();
        if let Err(error) = service.tasks().store.save(record).await {
            service.report(&error, Method::GetTask.name(), None);
        }
        let (connection, revision) = (self.context.route().connection, self.context.revision());
        let GetTaskResult { task, detail, .. } = self.state_with_outcome();
        let params = TaskStatusParams { task, detail, meta: None };
        match revision.era() {
            Era::Session => connection.notify(|out| {
                write::notification(Method::TaskStatus.name(), out, |out| {
                    params.encode(&mut Encoder { out, revision });
                });
            }),
            Era::Stateless => {
                connection.streams().task_changed(&params, |message| connection.notify(message));
            }
        }
    }

    fn state_with_outcome(&self) -> GetTaskResult {
        let mut state = self.state();
        state.detail = state.detail.or_else(|| detail(&self.record()));
        state
    }
}

/// What the end of a task brings with it.
pub(super) fn detail(record: &TaskRecord) -> Option<TaskDetail> {
    match record.outcome.as_ref()? {
        TaskOutcome::Result(json) => serde_json::from_str(json).ok().map(TaskDetail::Result),
        TaskOutcome::Error(error) => Some(TaskDetail::Error(error.clone())),
    }
}

/// What woke the one who drives a task.
enum Step {
    Done(Outcome),
    /// It asks, or no longer does.
    Asks(bool),
    GivenUp,
}

/// Drives a task to its end.
pub(super) async fn run(service: Service, running: Arc<Running>, mut work: Work) {
    let ttl = running.record().ttl;
    let drive = async {
        let mut given_up = std::pin::pin!(running.context.end().given_up());
        loop {
            let asked = running.record().status == TaskStatus::InputRequired;
            let step = std::future::poll_fn(|cx| match work.poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Step::Done(outcome)),
                Poll::Pending if running.context.questions().is_waiting() != asked => {
                    Poll::Ready(Step::Asks(!asked))
                }
                Poll::Pending => given_up.as_mut().poll(cx).map(|()| Step::GivenUp),
            });
            match step.await {
                Step::Asks(asks) => {
                    let status = if asks { TaskStatus::InputRequired } else { TaskStatus::Working };
                    running.set_status(&service, status, None, None);
                    running.publish(&service).await;
                }
                Step::Done(outcome) => return finish(&service, &running, outcome),
                Step::GivenUp => return,
            }
        }
    };
    if tokio::time::timeout(ttl, drive).await.is_err() {
        let message = Some("the time for which it is kept is over".into());
        running.set_status(&service, TaskStatus::Cancelled, message, None);
    }
    running.context.end().cancel();
    running.publish(&service).await;
    lock(&service.tasks().running).remove(&running.record().id);
}

fn finish(service: &Service, running: &Running, outcome: Outcome) {
    let (revision, target) = (running.context.revision(), running.context.target().map(str::to_owned));
    if let Some(hidden) = &outcome.hidden {
        service.report(hidden, Method::CallTool.name(), target.as_deref());
    }
    let (status, outcome) = match outcome.answer {
        Ok(answer) => {
            let mut json = Vec::new();
            answer.encode(revision, service.identity(), &mut json);
            // In the core form a tool that failed is a task that failed.
            let failed = outcome.tool_error && revision.era() == Era::Session;
            let status = if failed { TaskStatus::Failed } else { TaskStatus::Completed };
            (status, TaskOutcome::Result(String::from_utf8_lossy(&json).into_owned()))
        }
        Err(error) => (TaskStatus::Failed, TaskOutcome::Error(error_object(&error, revision))),
    };
    running.set_status(service, status, None, Some(outcome));
}
