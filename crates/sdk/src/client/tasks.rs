//! Tasks: polling, input requests and cancellation by the client.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    CallToolResult, CancelTaskResult, GetTaskResult, InputRequest, Task, TaskDetail, TaskParams, TaskStatus,
};
use linchpin_protocol::{Era, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call::{decode_and_validate, decode_result};
use super::core::ClientCore;
use super::rounds::{
    CallDeadline, RoundRequest, TaskProgress, encode_responses, handle_input_requests, with_member,
};
use super::{Client, ClientError, RequestOptions};
use crate::server::spawn;

/// Poll interval of a task for which the server names none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum poll interval, even if the server names a shorter one.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum poll interval, even if the server names a longer one.
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);
/// Timeout of `tasks/result`, which may block until a user has replied to an elicitation.
const RESULT_TIMEOUT: Duration = Duration::from_hours(24);

/// Tool call that was sent: it has finished, or it continues as a task.
pub enum StartedCall {
    /// The call has finished.
    Done(Box<CallToolResult>),
    /// The call continues as a task.
    Task(Box<TaskHandle>),
}

/// Client's handle to a task that runs at the server. The task id is enough to resume it, even from another process.
#[derive(Clone)]
pub struct TaskHandle {
    client: Client,
    id: String,
    request: RoundRequest,
    /// Registration of the progress hook, until the last handle is dropped.
    _progress: Option<Arc<TaskProgress>>,
}

impl TaskHandle {
    pub(super) fn new(client: Client, id: String) -> Self {
        let request =
            RoundRequest { method: Method::CallTool, tool: None, options: RequestOptions::default() };
        TaskHandle { client, id, request, _progress: None }
    }

    pub(super) fn with_request(self, mut request: RoundRequest, progress: Option<TaskProgress>) -> Self {
        // Progress is reported under the token of the original request, not of requests about the task.
        request.options.progress = None;
        TaskHandle { request, _progress: progress.map(Arc::new), ..self }
    }

    /// Returns the id that the server has assigned to the task.
    pub fn id(&self) -> &str {
        &self.id
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &[u8],
        timeout: Option<Duration>,
    ) -> Result<T, ClientError> {
        let timeout = timeout.or(self.request.options.timeout);
        let options = RequestOptions { timeout, ..self.request.options.clone() };
        let text = self.client.core.request(self.client.revision(), method.name(), params, &options).await?;
        decode_result(method.name(), &text)
    }

    fn params(&self) -> Vec<u8> {
        to_vec(&TaskParams { task_id: self.id.clone(), meta: None }, self.client.revision())
    }

    /// Requests the current status of the task from the server.
    pub async fn get(&self) -> Result<GetTaskResult, ClientError> {
        self.request(Method::GetTask, &self.params(), None).await
    }

    /// Requests cancellation of the task.
    pub async fn cancel(&self) -> Result<Option<Task>, ClientError> {
        self.request::<CancelTaskResult>(Method::CancelTask, &self.params(), None)
            .await
            .map(|result| result.task)
    }

    /// Waits for the result of the task and handles input requests of the server. Dropping the future does not cancel
    /// the task; [`Self::cancel`] does.
    pub async fn wait(&self) -> Result<CallToolResult, ClientError> {
        let _active = self.client.core.register_call(self.request.options.scope.as_ref());
        let text = self.result().await?;
        decode_and_validate(&self.client, &self.request, &text)
    }

    /// Waits for the result of a call that became a task, as JSON text. Dropping the future cancels the task.
    pub(super) async fn finish(self) -> Result<String, ClientError> {
        let mut cancel = CancelOnDrop { core: self.client.core.clone(), params: Some(self.params()) };
        let result = self.result().await;
        // Cancel the task of a call that timed out, or whose input requests cannot be handled.
        if !matches!(
            result,
            Err(ClientError::ServerRequest { .. }
                | ClientError::UnsupportedByClient { .. }
                | ClientError::TooManyRounds(_)
                | ClientError::Call(CallError::TimedOut(_)))
        ) {
            cancel.params = None;
        }
        result
    }

    async fn result(&self) -> Result<String, ClientError> {
        match self.client.revision().era() {
            Era::Stateless => self.poll_stateless().await,
            Era::Session => self.poll_session().await,
        }
    }

    /// Requests the status of the task.
    async fn poll(&self) -> Result<GetTaskResult, ClientError> {
        self.get().await.map_err(|error| match error {
            // The handle was created from an id that the server may not know.
            ClientError::Call(CallError::Rejected(_)) if self.request.tool.is_none() => error,
            error => self.unfinished_error(error, TaskStatus::Working),
        })
    }

    /// Converts the error of a request about the task into one that names the task. The error does not describe the
    /// call, which may have run: the returned error names the task and its last known status.
    fn unfinished_error(&self, error: ClientError, status: TaskStatus) -> ClientError {
        match error {
            ClientError::Call(CallError::TimedOut(_)) => error,
            ClientError::Call(error) => {
                ClientError::Task { id: self.id.clone(), status, message: Some(error.to_string()) }
            }
            error => error,
        }
    }

    async fn poll_stateless(&self) -> Result<String, ClientError> {
        let mut handled = HashSet::new();
        let mut time = Deadlines::new(self);
        loop {
            let GetTaskResult { task, detail, .. } = self.poll().await?;
            match (task.status, detail) {
                (TaskStatus::Completed, Some(TaskDetail::Result(result))) => {
                    return Ok(serde_json::to_string(&result).unwrap_or_default());
                }
                (TaskStatus::Failed, Some(TaskDetail::Error(error))) => {
                    return Err(CallError::Rejected(error).into());
                }
                (TaskStatus::InputRequired, Some(TaskDetail::InputRequests(mut requests))) => {
                    // A key identifies one input request during the lifetime of the task.
                    requests.retain(|key, _| handled.insert(key.clone()));
                    if !requests.is_empty() {
                        self.send_input(requests, &mut time).await?;
                        time.check(&task)?;
                        continue;
                    }
                    time.check_responses()?;
                }
                (status, _) if status.is_terminal() => return Err(self.task_error(task)),
                _ => time.responses_sent_at = None,
            }
            time.check(&task)?;
            tokio::time::sleep(poll_interval(&task)).await;
        }
    }

    /// Handles input requests of the task and sends the responses to the server.
    async fn send_input(
        &self,
        requests: BTreeMap<String, InputRequest>,
        time: &mut Deadlines,
    ) -> Result<(), ClientError> {
        let max = self.client.core.settings.max_rounds;
        time.rounds += 1;
        if time.rounds > max {
            return Err(ClientError::TooManyRounds(max));
        }
        let started_at = Instant::now();
        let replies = handle_input_requests(&self.client, &self.request.options, requests).await?;
        time.deadline.exclude(started_at.elapsed());
        let responses = encode_responses(&self.client, &replies);
        let params = with_member(&self.params(), "inputResponses", &responses);
        let updated: Result<Value, _> = self.request(Method::UpdateTask, &params, None).await;
        updated.map_err(|error| self.unfinished_error(error, TaskStatus::InputRequired))?;
        time.responses_sent_at = Some(Instant::now());
        Ok(())
    }

    fn task_error(&self, task: Task) -> ClientError {
        ClientError::Task { id: self.id.clone(), status: task.status, message: task.status_message }
    }

    /// Fetches the result once the task has finished or requires input, which a session requests with server
    /// requests.
    async fn poll_session(&self) -> Result<String, ClientError> {
        let mut time = Deadlines::new(self);
        let peer = &self.client.core.peer;
        let mut paused = peer.paused_time();
        loop {
            let GetTaskResult { task, .. } = self.poll().await?;
            if task.status == TaskStatus::Cancelled {
                return Err(self.task_error(task));
            }
            if task.status != TaskStatus::Working {
                let timeout =
                    time.deadline.remaining().map_or(RESULT_TIMEOUT, |left| left.min(RESULT_TIMEOUT));
                let result: Result<Box<RawValue>, _> =
                    self.request(Method::GetTaskPayload, &self.params(), Some(timeout)).await;
                match (result, task.status) {
                    (Ok(result), _) => return Ok(result.get().to_owned()),
                    // The error of the call itself.
                    (Err(error @ ClientError::Call(CallError::Rejected(_))), TaskStatus::Failed) => {
                        return Err(error);
                    }
                    // Some servers reject `tasks/result` for an unfinished task instead of waiting.
                    (Err(ClientError::Call(CallError::Rejected(_))), status) if !status.is_terminal() => {}
                    (Err(error), status) => return Err(self.unfinished_error(error, status)),
                }
            }
            let paused_before = std::mem::replace(&mut paused, peer.paused_time());
            time.deadline.exclude(paused.saturating_sub(paused_before));
            time.check(&task)?;
            tokio::time::sleep(poll_interval(&task)).await;
        }
    }
}

/// Time limits of a client that waits for a task to finish.
struct Deadlines {
    started_at: Instant,
    deadline: CallDeadline,
    /// How long the server may take to process input responses.
    timeout: Duration,
    /// Number of times the server has requested input.
    rounds: usize,
    /// When the last input responses were sent; `None` once the server has processed them.
    responses_sent_at: Option<Instant>,
}

impl Deadlines {
    fn new(task: &TaskHandle) -> Self {
        let (client, options) = (&task.client, &task.request.options);
        Deadlines {
            started_at: Instant::now(),
            deadline: CallDeadline::new(client, options),
            timeout: options.timeout.unwrap_or(client.core.settings.timeout),
            rounds: 0,
            responses_sent_at: None,
        }
    }

    /// Fails if the call has timed out, or if the task has outlived its TTL.
    fn check(&self, task: &Task) -> Result<(), CallError> {
        self.deadline.check()?;
        match task.ttl_ms.map(Duration::from_millis) {
            Some(ttl) if self.started_at.elapsed() > ttl.saturating_add(2 * poll_interval(task)) => {
                Err(CallError::TimedOut(ttl))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the server still requests input that was already sent.
    fn check_responses(&self) -> Result<(), CallError> {
        match self.responses_sent_at {
            Some(sent) if sent.elapsed() > self.timeout => Err(CallError::TimedOut(self.timeout)),
            _ => Ok(()),
        }
    }
}

fn poll_interval(task: &Task) -> Duration {
    task.poll_interval_ms
        .map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis)
        .clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// Guard that cancels a task at the server on drop, unless it has finished.
struct CancelOnDrop {
    core: Arc<ClientCore>,
    /// Parameters of the request that cancels the task; `None` once the task has finished.
    params: Option<Vec<u8>>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(params), core) = (self.params.take(), self.core.clone()) else { return };
        spawn(&self.core.runtime, async move {
            let (revision, options) = (core.revision(), RequestOptions::default());
            if let Err(error) = core.request(revision, Method::CancelTask.name(), &params, &options).await {
                tracing::debug!(%error, "failed to cancel a task");
            }
        });
    }
}

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
