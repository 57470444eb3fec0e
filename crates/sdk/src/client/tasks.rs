//! Requests that became tasks: polled, answered and cancelled by the client.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    CallToolResult, CancelTaskResult, GetTaskResult, Task, TaskDetail, TaskParams, TaskStatus,
};
use linchpin_protocol::{Era, Method};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::call::{decoded, finish};
use super::core::Core;
use super::rounds::{Budget, Request, answer_all, answers_json, with_member};
use super::{Client, ClientError, Options};
use crate::server::start;

/// How often to look when the server does not say: and the bounds of what it may say.
const POLL: Duration = Duration::from_secs(1);
const FASTEST: Duration = Duration::from_millis(20);
const SLOWEST: Duration = Duration::from_mins(1);
/// How long `tasks/result` may take: as long as a person who is asked meanwhile.
const UNTIL_DONE: Duration = Duration::from_hours(24);

/// A call that was begun.
pub enum Started {
    /// It is done.
    Done(Box<CallToolResult>),
    /// It goes on as a task.
    Task(Box<TaskHandle>),
}

/// A task of the server. Its id is all that is needed to come back to it, from another process too.
#[derive(Clone)]
pub struct TaskHandle {
    client: Client,
    id: String,
    request: Request,
}

impl TaskHandle {
    pub(super) fn new(client: Client, id: String) -> Self {
        let request =
            Request { method: Method::CallTool, tool: None, options: Options::default(), ttl: None };
        TaskHandle { client, id, request }
    }

    pub(super) fn with(mut self, request: Request) -> Self {
        // Progress belongs to the request that was answered.
        self.request = Request { options: Options { progress: None, ..request.options.clone() }, ..request };
        self
    }

    /// The server's name for it.
    pub fn id(&self) -> &str {
        &self.id
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &[u8],
        timeout: Option<Duration>,
    ) -> Result<T, ClientError> {
        let timeout = timeout.or(self.request.options.timeout);
        let options = Options { timeout, ..self.request.options.clone() };
        let text = self.client.core.ask(self.client.revision(), method.name(), params, &options).await?;
        decoded(method.name(), &text)
    }

    fn params(&self) -> Vec<u8> {
        to_vec(&TaskParams { task_id: self.id.clone(), meta: None }, self.client.revision())
    }

    /// How far it has come.
    pub async fn get(&self) -> Result<GetTaskResult, ClientError> {
        self.ask(Method::GetTask, &self.params(), None).await
    }

    /// Asks the server to give it up.
    pub async fn cancel(&self) -> Result<Option<Task>, ClientError> {
        self.ask::<CancelTaskResult>(Method::CancelTask, &self.params(), None).await.map(|result| result.task)
    }

    /// Waits for the result, and answers what the server asks meanwhile. Dropping the future leaves the task as it
    /// is; [`Self::cancel`] gives it up.
    pub async fn wait(&self) -> Result<CallToolResult, ClientError> {
        let text = self.result().await?;
        finish(&self.client, &self.request, &text)
    }

    /// The result of a call that became a task, as JSON text. When nobody waits any more the task is given up.
    pub(super) async fn finish(self) -> Result<String, ClientError> {
        let mut cancel = CancelOnDrop { core: self.client.core.clone(), params: Some(self.params()) };
        let result = self.result().await;
        // A call whose time is over is cancelled, as any other, and so is one whose questions nobody can answer.
        if !matches!(
            result,
            Err(ClientError::Question { .. }
                | ClientError::NotOffered { .. }
                | ClientError::TooManyRounds(_)
                | ClientError::Call(CallError::TimedOut(_)))
        ) {
            cancel.params = None;
        }
        result
    }

    async fn result(&self) -> Result<String, ClientError> {
        let followed = match self.client.revision().era() {
            Era::Stateless => self.follow().await,
            Era::Session => self.follow_in_session().await,
        };
        // Whoever called learns the name of the task, to come back to it.
        followed.map_err(|error| match error {
            ClientError::Call(CallError::Lost(_) | CallError::Closed(_)) => ClientError::Task {
                id: self.id.clone(),
                status: TaskStatus::Working,
                message: Some(error.to_string()),
            },
            error => error,
        })
    }

    async fn follow(&self) -> Result<String, ClientError> {
        let (mut answered, mut rounds) = (HashSet::new(), 0);
        let most = self.client.core.settings.max_rounds;
        let begun = Instant::now();
        let mut time = Budget::new(&self.client, &self.request.options);
        loop {
            let GetTaskResult { task, detail, .. } = self.get().await?;
            if task.ttl_ms.is_some_and(|ttl| begun.elapsed() > Duration::from_millis(ttl) + SLOWEST) {
                return Err(self.ended(task)); // it should be gone by now
            }
            match (task.status, detail) {
                (TaskStatus::Completed, Some(TaskDetail::Result(result))) => {
                    return Ok(serde_json::to_string(&result).unwrap_or_default());
                }
                (TaskStatus::Failed, Some(TaskDetail::Error(error))) => {
                    return Err(CallError::Rejected(error).into());
                }
                (TaskStatus::InputRequired, Some(TaskDetail::InputRequests(mut requests))) => {
                    requests.retain(|key, _| answered.insert(key.clone()));
                    if !requests.is_empty() {
                        rounds += 1;
                        if rounds > most {
                            return Err(ClientError::TooManyRounds(most));
                        }
                        let asked = Instant::now();
                        let replies = answer_all(&self.client, &self.request.options, requests).await?;
                        time.give_back(asked.elapsed());
                        let answers = answers_json(&self.client, &replies);
                        let params = with_member(&self.params(), "inputResponses", &answers);
                        let _: serde_json::Value = self.ask(Method::UpdateTask, &params, None).await?;
                        continue;
                    }
                }
                (status, _) if status.is_terminal() => return Err(self.ended(task)),
                _ => {}
            }
            time.check()?;
            tokio::time::sleep(pause(&task)).await;
        }
    }

    fn ended(&self, task: Task) -> ClientError {
        ClientError::Task { id: self.id.clone(), status: task.status, message: task.status_message }
    }

    /// The result is fetched once the task is done, or waits for answers, which come by requests of the server.
    async fn follow_in_session(&self) -> Result<String, ClientError> {
        let time = Budget::new(&self.client, &self.request.options);
        loop {
            let GetTaskResult { task, .. } = self.get().await?;
            time.check()?;
            match task.status {
                TaskStatus::Working => tokio::time::sleep(pause(&task)).await,
                TaskStatus::Cancelled => return Err(self.ended(task)),
                TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed => {
                    let result: Box<serde_json::value::RawValue> =
                        self.ask(Method::GetTaskPayload, &self.params(), Some(UNTIL_DONE)).await?;
                    return Ok(result.get().to_owned());
                }
            }
        }
    }
}

fn pause(task: &Task) -> Duration {
    task.poll_interval_ms.map_or(POLL, Duration::from_millis).clamp(FASTEST, SLOWEST)
}

/// Gives a task up that nobody waits for any more.
struct CancelOnDrop {
    core: Arc<Core>,
    /// Which one; nothing once it has ended.
    params: Option<Vec<u8>>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(params), core) = (self.params.take(), self.core.clone()) else { return };
        start(&self.core.runtime, async move {
            let (revision, options) = (core.revision(), Options::default());
            if let Err(error) = core.ask(revision, Method::CancelTask.name(), &params, &options).await {
                tracing::debug!(%error, "a task could not be cancelled");
            }
        });
    }
}

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
