//! Storage of tasks: the trait [`TaskStore`], the stored [`TaskRecord`], and the default store in memory.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use linchpin_jsonrpc::ErrorObject;
use linchpin_protocol::model::{Task, TaskStatus};

use super::super::clock::iso_8601;
use crate::Result;
use crate::lock::lock;

/// Maximum number of tasks in the store in memory.
const MAX_TASKS: usize = 10_000;

/// MCP task as stored in a [`TaskStore`].
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// Id of the task, which cannot be guessed.
    pub id: String,
    /// Principal that owns the task, if known; no other principal may see it.
    pub principal: Option<String>,
    /// Session in which the task was created: without a principal, only this session may list it.
    pub session: String,
    /// Scopes that the tool of the task requires. A caller with an identity needs them to read the task and to send it
    /// input.
    pub scopes: Vec<String>,
    /// Status of the task.
    pub status: TaskStatus,
    /// Description of the status, for users.
    pub message: Option<String>,
    /// Creation time since the Unix epoch.
    pub created: Duration,
    /// Time of the last change of the task, since the Unix epoch.
    pub updated: Duration,
    /// Lifetime of the task from its creation.
    pub ttl: Duration,
    /// Interval at which clients should poll the task.
    pub poll_interval: Duration,
    /// End of the lease of the process that runs the task, since the Unix epoch; the process extends it by saving
    /// again.
    pub alive_until: Duration,
    /// Outcome, once the task has ended.
    pub outcome: Option<TaskOutcome>,
}

/// Outcome of a task that has ended, as stored: its result or error.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskOutcome {
    /// Result as JSON, encoded for the protocol revision of the request.
    Result(String),
    /// Error that the request would have returned without a task.
    Error(ErrorObject),
}

impl TaskRecord {
    /// Returns whether the lifetime of the task has expired.
    pub fn is_expired(&self, now: Duration) -> bool {
        now > self.created.saturating_add(self.ttl)
    }

    pub(crate) fn to_task(&self) -> Task {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Task {
            task_id: self.id.clone(),
            status: self.status,
            status_message: self.message.clone(),
            created_at: iso_8601(self.created),
            last_updated_at: iso_8601(self.updated),
            ttl_ms: Some(millis(self.ttl)),
            poll_interval_ms: Some(millis(self.poll_interval)),
        }
    }
}

/// Future that a method of [`TaskStore`] returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Store of the MCP tasks of a server. With a store that outlives the process, task ids remain valid after a restart,
/// and several instances can share it. A task whose process has ended is reported as failed once it has not been saved
/// for a minute.
pub trait TaskStore: Send + Sync + 'static {
    /// Stores a new or changed task. Afterwards [`Self::find`] must return it.
    fn save(&self, task: TaskRecord) -> StoreFuture<'_, ()>;

    /// Returns the stored task with this id.
    fn find<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<TaskRecord>>;

    /// Returns the first tasks with ids greater than `after`, in the order of their ids and up to the given number:
    /// those of `principal`, or of `session` if `principal` is `None`.
    fn list<'a>(
        &'a self,
        principal: Option<&'a str>,
        session: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRecord>>;

    /// Deletes a task from the store.
    fn remove<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()>;
}

/// Task store in memory.
#[derive(Default)]
pub(crate) struct MemoryTaskStore(Mutex<BTreeMap<String, TaskRecord>>);

impl TaskStore for MemoryTaskStore {
    fn save(&self, task: TaskRecord) -> StoreFuture<'_, ()> {
        let mut tasks = lock(&self.0);
        // Expired tasks are removed with each new task: otherwise unread results would stay in memory.
        if !tasks.contains_key(&task.id) {
            let now = task.updated;
            tasks.retain(|_, task| !task.is_expired(now));
        }
        let is_full = tasks.len() >= MAX_TASKS && !tasks.contains_key(&task.id);
        if !is_full {
            tasks.insert(task.id.clone(), task);
        }
        drop(tasks);
        let failed =
            || Err(crate::Error::tool(format!("{MAX_TASKS} tasks are stored already: try again later")));
        Box::pin(std::future::ready(if is_full { failed() } else { Ok(()) }))
    }

    fn find<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<TaskRecord>> {
        Box::pin(std::future::ready(Ok(lock(&self.0).get(id).cloned())))
    }

    fn list<'a>(
        &'a self,
        principal: Option<&'a str>,
        session: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRecord>> {
        let tasks = lock(&self.0);
        let mine = |task: &&TaskRecord| match principal {
            Some(_) => task.principal.as_deref() == principal,
            None => task.principal.is_none() && task.session == session,
        };
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let range = tasks.range::<str, _>((from, std::ops::Bound::Unbounded));
        let page = range.map(|(_, task)| task).filter(mine).take(limit).cloned().collect();
        Box::pin(std::future::ready(Ok(page)))
    }

    fn remove<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        lock(&self.0).remove(id);
        Box::pin(std::future::ready(Ok(())))
    }
}
