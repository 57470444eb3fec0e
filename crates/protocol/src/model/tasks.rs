//! Tasks: requests whose result comes later.
//!
//! There are two forms. In one revision tasks are part of the core: either side runs them, the one who asks wishes
//! for them, and the result is fetched with `tasks/result`. From the next revision on they are the extension
//! [`extension::TASKS`](super::extension::TASKS): only servers run them, the server decides, and the result
//! stands in the answer to `tasks/get`. The types here are for both; each says what the other form calls it.

use std::collections::BTreeMap;

use linchpin_jsonrpc::ErrorObject;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::results::{encode_result, results};
use super::{InputRequest, Meta, ResultBody};
use crate::encode::{Encode, Encoder, Fields, model, words};
use crate::version::Feature;

words! {
    /// How far a task has come.
    pub enum TaskStatus {
        /// It runs.
        Working = "working",
        /// It waits for answers to its questions.
        InputRequired = "input_required",
        /// There is a result. In the core form a tool that failed counts as `failed`, in the extension as this.
        Completed = "completed",
        /// There is an error.
        Failed = "failed",
        /// It was given up.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Whether it stays so for ever.
    pub const fn is_terminal(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// A task. The two durations have other names in the core form: `ttl` and `pollInterval`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub struct Task {
    /// Its name, chosen by the one who runs it.
    pub task_id: String,
    /// How far it has come.
    pub status: TaskStatus,
    /// The same, for people.
    pub status_message: Option<String>,
    /// When it began, as ISO 8601.
    pub created_at: String,
    /// When it changed last, as ISO 8601.
    pub last_updated_at: String,
    /// Milliseconds from its beginning for which it is kept; `None` is for ever, and written as `null`.
    pub ttl_ms: Option<u64>,
    /// Milliseconds to wait between two looks at it.
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
        fields.with(ttl, |to| self.ttl_ms.encode(to));
        fields.field(poll_interval, &self.poll_interval_ms);
    }
}

impl Encode for Task {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| self.encode_fields(fields));
    }
}

/// What the status of a task brings with it. Only the extension writes it.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskDetail {
    /// The open questions of a task that is `input_required`, by a name that the answers repeat.
    InputRequests(BTreeMap<String, InputRequest>),
    /// The result of a task that is `completed`: what the request would have been answered with.
    Result(Map<String, Value>),
    /// The error of a task that has `failed`.
    Error(ErrorObject),
}

impl TaskDetail {
    fn encode_fields(&self, fields: &mut Fields<'_, '_>) {
        let (key, value): (_, &dyn Encode) = match self {
            TaskDetail::InputRequests(requests) => ("inputRequests", requests),
            TaskDetail::Result(result) => ("result", result),
            TaskDetail::Error(error) => ("error", error),
        };
        fields.since(Feature::Extensions, key, value);
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
    /// The wish to run a request as a task (core form).
    #[derive(Default)]
    pub struct TaskMetadata {
        /// Milliseconds for which the task should be kept.
        ttl: Option<u64> = "ttl",
    }

    /// The task that a message belongs to: the value of [`key::RELATED_TASK`](super::key::RELATED_TASK) in `_meta`
    /// (core form).
    pub struct RelatedTaskMetadata {
        /// Its name.
        task_id: String = "taskId",
    }

    /// Which task: for `tasks/get` and `tasks/cancel`, and for `tasks/result` in the core form.
    pub struct TaskParams {
        /// Its name.
        task_id: String = "taskId",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// Answers to questions of a task (extension).
    pub struct UpdateTaskParams {
        /// The task's name.
        task_id: String = "taskId",
        /// The answers, by the names of the questions; not all need to come at once.
        input_responses: Map<String, Value> = "inputResponses",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// What can be run as a task, as a capability of either side (core form).
    #[derive(Default)]
    pub struct TasksCapability {
        /// `tasks/list` is answered.
        list: Option<Map<String, Value>> = "list",
        /// `tasks/cancel` is answered.
        cancel: Option<Map<String, Value>> = "cancel",
        /// The requests that can be run as tasks: `tools/call` is the member `call` of the member `tools`.
        requests: Option<BTreeMap<String, Map<String, Value>>> = "requests",
    }
}

impl TasksCapability {
    /// Whether a request of this method can be run as a task.
    pub fn has_request(&self, method: &str) -> bool {
        let Some((group, name)) = method.split_once('/') else { return false };
        self.requests
            .as_ref()
            .and_then(|groups| groups.get(group))
            .is_some_and(|group| group.contains_key(name))
    }
}

results! {
    /// One page of tasks (core form).
    pub struct ListTasksResult {
        /// The tasks.
        tasks: Vec<Task> = "tasks",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
    }
}

/// Declares results that are a task: their own fields are there already, `_meta` and the rest of a result is added.
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

/// Instead of a result: the task that will have it. The core form puts the task into a member `task`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub struct CreateTaskResult {
    /// The task as it begins.
    pub task: Task,
    /// Metadata of the result itself.
    pub meta: Option<Meta>,
}

/// A task as it is now: the answer to `tasks/get`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub struct GetTaskResult {
    /// The task.
    pub task: Task,
    /// What its status brings with it.
    pub detail: Option<TaskDetail>,
    /// Metadata of the result itself.
    pub meta: Option<Meta>,
}

/// The answer to `tasks/cancel`. The core form says what became of the task, the extension only that it has heard.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub struct CancelTaskResult {
    /// The task; set by every receiver, since it must be written in the core form.
    pub task: Option<Task>,
    /// Metadata of the result itself.
    pub meta: Option<Meta>,
}

/// The answer to `tasks/result` (core form): what the request that became a task would have been answered with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GetTaskPayloadResult {
    /// The members of that result.
    #[serde(flatten)]
    pub result: Map<String, Value>,
    /// Metadata; it must name the task under [`key::RELATED_TASK`](super::key::RELATED_TASK).
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

/// A task that has changed: `notifications/tasks/status` in the core form, `notifications/tasks` in the extension.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub struct TaskStatusParams {
    /// The task.
    pub task: Task,
    /// What its status brings with it.
    pub detail: Option<TaskDetail>,
    /// Metadata.
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

/// All members that any of these types has in any form: one pass, then the members that are there decide.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wide {
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

impl Wide {
    fn task(&mut self) -> Result<Task, String> {
        let need = |member: &str| format!("a task needs \"{member}\"");
        Ok(Task {
            task_id: self.task_id.take().ok_or_else(|| need("taskId"))?,
            status: self.status.ok_or_else(|| need("status"))?,
            status_message: self.status_message.take(),
            created_at: self.created_at.take().ok_or_else(|| need("createdAt"))?,
            last_updated_at: self.last_updated_at.take().ok_or_else(|| need("lastUpdatedAt"))?,
            ttl_ms: self.ttl_ms.or(self.ttl),
            poll_interval_ms: self.poll_interval_ms.or(self.poll_interval),
        })
    }

    /// What belongs to the status; members that belong to another one do not count.
    fn detail(&mut self) -> Option<TaskDetail> {
        match self.status? {
            TaskStatus::InputRequired => self.input_requests.take().map(TaskDetail::InputRequests),
            TaskStatus::Completed => self.result.take().map(TaskDetail::Result),
            TaskStatus::Failed => self.error.take().map(TaskDetail::Error),
            TaskStatus::Working | TaskStatus::Cancelled => None,
        }
    }
}

impl TryFrom<Wide> for Task {
    type Error = String;

    fn try_from(mut wide: Wide) -> Result<Self, String> {
        wide.task()
    }
}

impl TryFrom<Wide> for CreateTaskResult {
    type Error = String;

    fn try_from(mut wide: Wide) -> Result<Self, String> {
        let nested = wide.task.take();
        Ok(Self { task: nested.map_or_else(|| wide.task(), Ok)?, meta: wide.meta })
    }
}

impl TryFrom<Wide> for GetTaskResult {
    type Error = String;

    fn try_from(mut wide: Wide) -> Result<Self, String> {
        Ok(Self { task: wide.task()?, detail: wide.detail(), meta: wide.meta })
    }
}

impl TryFrom<Wide> for CancelTaskResult {
    type Error = String;

    fn try_from(mut wide: Wide) -> Result<Self, String> {
        let task = if wide.task_id.is_some() { Some(wide.task()?) } else { None };
        Ok(Self { task, meta: wide.meta })
    }
}

impl TryFrom<Wide> for TaskStatusParams {
    type Error = String;

    fn try_from(mut wide: Wide) -> Result<Self, String> {
        Ok(Self { task: wide.task()?, detail: wide.detail(), meta: wide.meta })
    }
}
