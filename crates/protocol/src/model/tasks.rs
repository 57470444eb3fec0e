//! Tasks: requests whose result is available later.
//!
//! There are two forms. Core tasks are part of one revision: either side runs tasks, the requestor decides, and
//! the result is fetched with `tasks/result`. In later revisions tasks are the extension
//! [`extension::TASKS`](super::extension::TASKS): only servers run tasks, the server decides whether a request becomes
//! a task, and `tasks/get` returns the result. The types are for both forms and document the differences.

use std::collections::BTreeMap;

use linchpin_jsonrpc::ErrorObject;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::results::{encode_result, results};
use super::{InputRequest, Meta, ResultBody};
use crate::encode::{Encode, Encoder, Fields, model, words};
use crate::version::Feature;

words! {
    /// Status of an MCP task.
    pub enum TaskStatus {
        /// The task is running.
        Working = "working",
        /// The task waits for responses to its input requests.
        InputRequired = "input_required",
        /// The task has a result. If a tool reports an error, the status is `failed` with core tasks and `completed` in
        /// the extension.
        Completed = "completed",
        /// The task failed with an error.
        Failed = "failed",
        /// The task was cancelled.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Reports whether the task status is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// MCP task: a request whose result is available later, with its status. Core tasks name the two durations `ttl` and
/// `pollInterval`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTask")]
pub struct Task {
    /// Id of the task, chosen by the receiver of the request.
    pub task_id: String,
    /// Status of the task.
    pub status: TaskStatus,
    /// Description of the status.
    pub status_message: Option<String>,
    /// Creation time, as ISO 8601.
    pub created_at: String,
    /// Time of the last change of the task, as ISO 8601.
    pub last_updated_at: String,
    /// Retention of the task in milliseconds from its creation. `None` is unlimited and encoded as `null`.
    pub ttl_ms: Option<u64>,
    /// Suggested interval between polls of the task, in milliseconds.
    pub poll_interval_ms: Option<u64>,
}

impl Task {
    fn encode_fields(&self, fields: &mut Fields<'_, '_>) {
        let core = fields.revision().has(Feature::CoreTasks);
        let (ttl, poll_interval) = if core { ("ttl", "pollInterval") } else { ("ttlMs", "pollIntervalMs") };
        fields.field("taskId", &self.task_id);
        fields.field("status", &self.status);
        fields.field("statusMessage", &self.status_message);
        fields.field("createdAt", &self.created_at);
        fields.field("lastUpdatedAt", &self.last_updated_at);
        fields.field_with(ttl, |to| self.ttl_ms.encode(to));
        fields.field(poll_interval, &self.poll_interval_ms);
    }
}

impl Encode for Task {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| self.encode_fields(fields));
    }
}

/// Part of a task that depends on its status: pending input requests, the result, or the error. Encoded only in the
/// extension.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskDetail {
    /// Pending input requests of an `input_required` task by key. The responses use the same keys.
    InputRequests(BTreeMap<String, InputRequest>),
    /// Result of a `completed` task: the result of the original request.
    Result(Map<String, Value>),
    /// Error of a `failed` task.
    Error(ErrorObject),
}

impl TaskDetail {
    fn encode_fields(&self, fields: &mut Fields<'_, '_>) {
        let (key, value): (_, &dyn Encode) = match self {
            TaskDetail::InputRequests(requests) => ("inputRequests", requests),
            TaskDetail::Result(result) => ("result", result),
            TaskDetail::Error(error) => ("error", error),
        };
        fields.field_since(Feature::Extensions, key, value);
    }
}

impl Encode for ErrorObject {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            fields.field("code", &self.code);
            fields.field("message", &self.message);
            fields.field("data", &self.data);
        });
    }
}

model! {
    /// Member `task` of a request: the sender wants it to run as a task (core tasks).
    #[derive(Default)]
    pub struct TaskMetadata {
        /// Requested retention of the task in milliseconds.
        ttl: Option<u64> = "ttl",
    }

    /// Task that a message belongs to: the value of [`key::RELATED_TASK`](super::key::RELATED_TASK) in `_meta`. For
    /// core tasks only, not for the tasks extension.
    pub struct RelatedTaskMetadata {
        /// Id of the task.
        task_id: String = "taskId",
    }

    /// Parameters of `tasks/get` and `tasks/cancel`, and of `tasks/result` (core tasks).
    pub struct TaskParams {
        /// Id of the task.
        task_id: String = "taskId",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Parameters of `tasks/update` (extension).
    pub struct UpdateTaskParams {
        /// Id of the task.
        task_id: String = "taskId",
        /// Responses of the client, by the keys of the task's input requests. They need not be complete.
        input_responses: Map<String, Value> = "inputResponses",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Tasks capability of a client or server: supported methods, and requests that can run as tasks (core tasks).
    #[derive(Default)]
    pub struct TasksCapability {
        /// Whether `tasks/list` is supported.
        list: Option<Map<String, Value>> = "list",
        /// Whether `tasks/cancel` is supported.
        cancel: Option<Map<String, Value>> = "cancel",
        /// Requests that can run as tasks, grouped by prefix: `tools/call` is the member `call` of `tools`.
        requests: Option<BTreeMap<String, Map<String, Value>>> = "requests",
    }
}

impl TasksCapability {
    /// Reports whether a request with this method can run as a task.
    pub fn has_request(&self, method: &str) -> bool {
        let Some((group, name)) = method.split_once('/') else { return false };
        self.requests
            .as_ref()
            .and_then(|groups| groups.get(group))
            .is_some_and(|group| group.contains_key(name))
    }
}

results! {
    /// Result of `tasks/list`: one page of tasks (core tasks).
    pub struct ListTasksResult {
        /// Tasks of the page.
        tasks: Vec<Task> = "tasks",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
    }
}

/// Implements the result traits for task results, whose structs are declared separately.
macro_rules! task_results {
    ($( $name:ident is $word:literal: |$result:ident, $fields:ident| $body:expr; )*) => {$(
        impl ResultBody for $name {
            fn encode_body(&self, $fields: &mut Fields<'_, '_>) {
                let $result = self;
                $body;
            }

            fn meta(&self) -> Option<&Meta> {
                self.meta.as_ref()
            }

            fn result_type(&self) -> &'static str {
                $word
            }
        }

        impl Encode for $name {
            fn encode(&self, to: &mut Encoder<'_>) {
                encode_result(self, None, to);
            }
        }
    )*};
}

/// Result of a request that runs as a task. Core tasks encode the task in the member `task`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTask")]
pub struct CreateTaskResult {
    /// Created task.
    pub task: Task,
    /// Metadata of the result.
    pub meta: Option<Meta>,
}

/// Result of `tasks/get`: the current state of a task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTask")]
pub struct GetTaskResult {
    /// Current state of the task.
    pub task: Task,
    /// Details of the task that depend on its status.
    pub detail: Option<TaskDetail>,
    /// Metadata of the result.
    pub meta: Option<Meta>,
}

/// Result of `tasks/cancel`. Core tasks return the cancelled task, the extension only an acknowledgement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTask")]
pub struct CancelTaskResult {
    /// Cancelled task. Receivers always set it, since core tasks require it.
    pub task: Option<Task>,
    /// Metadata of the result.
    pub meta: Option<Meta>,
}

/// Result of `tasks/result` (core tasks): the result of the original request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GetTaskPayloadResult {
    /// Members of the result of the task.
    #[serde(flatten)]
    pub result: Map<String, Value>,
    /// Metadata of the result (`_meta`). It must contain the task id under
    /// [`key::RELATED_TASK`](super::key::RELATED_TASK).
    #[serde(rename = "_meta", default)]
    pub meta: Option<Meta>,
}

task_results! {
    CreateTaskResult is "task": |result, fields| if fields.revision().has(Feature::CoreTasks) {
        fields.field("task", &result.task);
    } else {
        result.task.encode_fields(fields);
    };
    GetTaskResult is "complete": |result, fields| encode_detailed(&result.task, result.detail.as_ref(), fields);
    CancelTaskResult is "complete": |result, fields| if fields.revision().has(Feature::CoreTasks) {
        result.task.iter().for_each(|task| task.encode_fields(fields));
    };
    GetTaskPayloadResult is "complete": |result, fields| fields.members(&result.result);
}

/// Parameters of `notifications/tasks/status` (core tasks) and `notifications/tasks` (extension).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTask")]
pub struct TaskStatusParams {
    /// Current state of the task.
    pub task: Task,
    /// Details of the task that depend on its status.
    pub detail: Option<TaskDetail>,
    /// Metadata of the notification (`_meta`).
    pub meta: Option<Meta>,
}

impl Encode for TaskStatusParams {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            encode_detailed(&self.task, self.detail.as_ref(), fields);
            fields.field("_meta", &self.meta);
        });
    }
}

fn encode_detailed(task: &Task, detail: Option<&TaskDetail>, fields: &mut Fields<'_, '_>) {
    task.encode_fields(fields);
    if let Some(detail) = detail {
        detail.encode_fields(fields);
    }
}

/// Members of tasks of both forms (core and extension), before the form is determined. Decoded in one pass; the members
/// present determine the form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTask {
    task: Option<Task>,
    task_id: Option<String>,
    status: Option<TaskStatus>,
    status_message: Option<String>,
    created_at: Option<String>,
    last_updated_at: Option<String>,
    ttl: Option<u64>,
    ttl_ms: Option<u64>,
    poll_interval: Option<u64>,
    poll_interval_ms: Option<u64>,
    input_requests: Option<BTreeMap<String, InputRequest>>,
    result: Option<Map<String, Value>>,
    error: Option<ErrorObject>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

impl RawTask {
    fn task(&mut self) -> Result<Task, String> {
        let missing_member = |member: &str| format!("a task needs \"{member}\"");
        Ok(Task {
            task_id: self.task_id.take().ok_or_else(|| missing_member("taskId"))?,
            status: self.status.ok_or_else(|| missing_member("status"))?,
            status_message: self.status_message.take(),
            created_at: self.created_at.take().ok_or_else(|| missing_member("createdAt"))?,
            last_updated_at: self.last_updated_at.take().ok_or_else(|| missing_member("lastUpdatedAt"))?,
            ttl_ms: self.ttl_ms.or(self.ttl),
            poll_interval_ms: self.poll_interval_ms.or(self.poll_interval),
        })
    }

    /// Returns the input requests, result or error that belong to the task status. Members that belong to another
    /// status are ignored.
    fn detail(&mut self) -> Option<TaskDetail> {
        match self.status? {
            TaskStatus::InputRequired => self.input_requests.take().map(TaskDetail::InputRequests),
            TaskStatus::Completed => self.result.take().map(TaskDetail::Result),
            TaskStatus::Failed => self.error.take().map(TaskDetail::Error),
            TaskStatus::Working | TaskStatus::Cancelled => None,
        }
    }
}

impl TryFrom<RawTask> for Task {
    type Error = String;

    fn try_from(mut raw: RawTask) -> Result<Self, String> {
        raw.task()
    }
}

impl TryFrom<RawTask> for CreateTaskResult {
    type Error = String;

    fn try_from(mut raw: RawTask) -> Result<Self, String> {
        let nested = raw.task.take();
        Ok(Self { task: nested.map_or_else(|| raw.task(), Ok)?, meta: raw.meta })
    }
}

impl TryFrom<RawTask> for GetTaskResult {
    type Error = String;

    fn try_from(mut raw: RawTask) -> Result<Self, String> {
        Ok(Self { task: raw.task()?, detail: raw.detail(), meta: raw.meta })
    }
}

impl TryFrom<RawTask> for CancelTaskResult {
    type Error = String;

    fn try_from(mut raw: RawTask) -> Result<Self, String> {
        let task = if raw.task_id.is_some() { Some(raw.task()?) } else { None };
        Ok(Self { task, meta: raw.meta })
    }
}

impl TryFrom<RawTask> for TaskStatusParams {
    type Error = String;

    fn try_from(mut raw: RawTask) -> Result<Self, String> {
        Ok(Self { task: raw.task()?, detail: raw.detail(), meta: raw.meta })
    }
}
