//! MCP task that runs in this process: driven to its end, with notifications of its status.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use linchpin_jsonrpc::write;
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{GetTaskResult, TaskDetail, TaskStatus, TaskStatusParams};
use linchpin_protocol::wire::error_object;
use linchpin_protocol::{Era, Method};
use tokio::sync::Notify;

use super::super::Service;
use super::store::{TaskOutcome, TaskRecord};
use crate::lock::lock;
use crate::server::request::context::Context;
use crate::server::request::work::{RequestFuture, RequestOutcome};

/// Duration of the lease of a running task. It is renewed three times per period.
pub(super) const LEASE_DURATION: Duration = Duration::from_mins(1);

/// MCP task that runs in this process.
pub(crate) struct RunningTask {
    pub(super) context: Context,
    record: Mutex<TaskRecord>,
    /// Signal that is set when the status of the task changes.
    changed: Notify,
}

impl RunningTask {
    pub(super) fn new(context: Context, record: TaskRecord) -> Self {
        RunningTask { context, record: Mutex::new(record), changed: Notify::new() }
    }

    pub(super) fn record(&self) -> TaskRecord {
        lock(&self.record).clone()
    }

    pub(super) fn belongs_to(&self, principal: Option<&str>) -> bool {
        lock(&self.record).principal.as_deref() == principal
    }

    /// Returns the current state of the task, with its input requests.
    pub(super) fn state(&self) -> GetTaskResult {
        let record = self.record();
        let open = || self.context.mailbox().open(self.context.revision());
        let needs_input = record.status == TaskStatus::InputRequired;
        let detail = needs_input.then(|| TaskDetail::InputRequests(open()));
        GetTaskResult { task: record.to_task(), detail, meta: None }
    }

    /// Waits until the task has ended and returns its record.
    pub(super) async fn wait_for_end(&self) -> TaskRecord {
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

    /// Cancels the task. Returns `false` if it has already ended.
    pub(super) async fn cancel(&self, service: &Service) -> bool {
        let given_up =
            self.set_status(service, TaskStatus::Cancelled, Some("the task was cancelled".into()), None);
        self.context.cancellation().cancel();
        if given_up {
            self.save(service).await;
            self.notify_status(service);
        }
        given_up
    }

    /// Returns the keys of the task's open input requests; session-era server requests are sent separately and have no
    /// key.
    fn open_input_keys(&self) -> Option<Vec<String>> {
        let mailbox = self.context.mailbox();
        match self.context.revision().era() {
            Era::Session => mailbox.is_waiting().then(Vec::new),
            Era::Stateless => Some(mailbox.open_keys()).filter(|keys| !keys.is_empty()),
        }
    }

    /// Changes the status of the task, unless it has ended.
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

    async fn save(&self, service: &Service) {
        let record = {
            let mut record = lock(&self.record);
            record.alive_until = service.settings().clock.since_epoch() + LEASE_DURATION;
            record.clone()
        };
        if let Err(error) = service.tasks().store.save(record).await {
            service.report(&error, Method::GetTask.name(), None);
        }
    }

    /// Notifies subscribers of the status of the task.
    fn notify_status(&self, service: &Service) {
        let revision = self.context.revision();
        let GetTaskResult { task, detail, .. } = self.state_with_outcome();
        let params = TaskStatusParams { task, detail, meta: None };
        match revision.era() {
            Era::Session => self.context.connection().into_iter().for_each(|connection| {
                connection.notify(|out| {
                    write::notification(Method::TaskStatus.name(), out, |out| {
                        params.encode(&mut Encoder { out, revision });
                    });
                });
            }),
            // A subscriber may be on another connection than the call.
            Era::Stateless => {
                service.live_catalog().clients().iter().for_each(|caller| caller.task_changed(&params));
            }
        }
    }

    fn state_with_outcome(&self) -> GetTaskResult {
        let mut state = self.state();
        state.detail = state.detail.or_else(|| outcome_detail(&self.record()));
        state
    }
}

/// Returns the result or error of a task that has ended.
pub(super) fn outcome_detail(record: &TaskRecord) -> Option<TaskDetail> {
    match record.outcome.as_ref()? {
        TaskOutcome::Result(json) => serde_json::from_str(json).ok().map(TaskDetail::Result),
        TaskOutcome::Error(error) => Some(TaskDetail::Error(error.clone())),
    }
}

/// Event that wakes the driver of a task.
enum TaskWake {
    Done(RequestOutcome),
    /// The set of input requests that the task waits for has changed.
    InputChanged(Option<Vec<String>>),
    Cancelled,
}

/// Runs the handler of a task to its end, and stores the outcome.
pub(super) async fn run(service: Service, running: Arc<RunningTask>, work: RequestFuture) {
    let ttl = running.record().ttl;
    running.context.cancellation().reopen(); // a task may share the cancellation of its request, which was answered
    let stay_alive = async {
        loop {
            tokio::time::sleep(LEASE_DURATION / 3).await;
            running.save(&service).await;
        }
    };
    let drive = async {
        tokio::select! { finished = drive(&service, &running, work) => finished, () = stay_alive => false }
    };
    let finished = tokio::time::timeout(ttl, drive).await.unwrap_or_else(|_| {
        let message = Some("the lifetime of the task has expired".into());
        running.set_status(&service, TaskStatus::Cancelled, message, None)
    });
    running.context.cancellation().cancel();
    running.save(&service).await;
    if finished {
        running.notify_status(&service);
    }
    lock(&service.tasks().running).remove(&running.record().id);
}

/// Runs the handler of a task until it ends; `false` if the task was cancelled.
async fn drive(service: &Service, running: &RunningTask, mut work: RequestFuture) -> bool {
    let (context, mut open_keys) = (&running.context, None);
    let mut cancelled = std::pin::pin!(context.cancellation().cancelled_unobserved());
    loop {
        let step = std::future::poll_fn(|cx| {
            context.mailbox().set_driver_waker(cx.waker());
            match (work.poll(cx), running.open_input_keys()) {
                (Poll::Ready(outcome), _) => Poll::Ready(TaskWake::Done(outcome)),
                (Poll::Pending, keys) if keys != open_keys => Poll::Ready(TaskWake::InputChanged(keys)),
                (Poll::Pending, _) => cancelled.as_mut().poll(cx).map(|()| TaskWake::Cancelled),
            }
        });
        match step.await {
            TaskWake::InputChanged(keys) => {
                let status = if keys.is_some() { TaskStatus::InputRequired } else { TaskStatus::Working };
                running.set_status(service, status, None, None);
                running.save(service).await;
                running.notify_status(service);
                open_keys = keys;
            }
            TaskWake::Done(outcome) => return finish(service, running, outcome),
            TaskWake::Cancelled => return false,
        }
    }
}

fn finish(service: &Service, running: &RunningTask, outcome: RequestOutcome) -> bool {
    let (revision, target) = (running.context.revision(), running.context.target().map(str::to_owned));
    if let Some(internal_error) = &outcome.internal_error {
        service.report(internal_error, Method::CallTool.name(), target.as_deref());
    }
    let (status, message, outcome) = match outcome.result {
        Ok(result) => {
            let mut json = Vec::new();
            result.encode(revision, service.identity(), &mut json);
            // For core tasks, a failed tool call is a failed task.
            let failed = outcome.tool_error && revision.era() == Era::Session;
            let status = if failed { TaskStatus::Failed } else { TaskStatus::Completed };
            let message = result.tool_text().filter(|_| failed);
            (status, message, TaskOutcome::Result(String::from_utf8_lossy(&json).into_owned()))
        }
        Err(error) => {
            let object = error_object(&error, revision);
            (TaskStatus::Failed, Some(object.message.clone()), TaskOutcome::Error(object))
        }
    };
    running.set_status(service, status, message, Some(outcome))
}
