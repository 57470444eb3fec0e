//! Where tasks are kept: in memory, or wherever an implementation of [`TaskStore`] puts them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use linchpin_jsonrpc::ErrorObject;
use linchpin_protocol::model::{Task, TaskStatus};

use super::super::clock::iso_8601;
use crate::Result;
use crate::sync::lock;

/// Tasks that are kept in memory at most.
const MAX_TASKS: usize = 10_000;

/// A task as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// Its name, which nobody can guess.
    pub id: String,
    /// Whose it is, where that is known; nobody else may see it.
    pub principal: Option<String>,
    /// The session it was begun in: the one that may list it where nothing else is known of its client.
    pub session: String,
    /// The scopes of its tool: a caller with an identity needs them to read the task and to send it input.
    pub scopes: Vec<String>,
    /// How far it has come.
    pub status: TaskStatus,
    /// The same, for people.
    pub message: Option<String>,
    /// When it began, since 1970.
    pub created: Duration,
    /// When it changed last, since 1970.
    pub updated: Duration,
    /// How long it is kept, from its beginning.
    pub ttl: Duration,
    /// How often to look at it.
    pub poll_interval: Duration,
    /// Until when the one who runs it is known to be there, since 1970; it is saved again before that.
    pub alive_until: Duration,
    /// What came of it.
    pub outcome: Option<TaskOutcome>,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskOutcome {
    /// A result, as JSON of the revision in which it was asked for.
    Result(String),
    /// An error.
    Error(ErrorObject),
}

impl TaskRecord {
    /// Whether the time for which it is kept is over.
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

/// What a store gives, in time.
pub type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Keeps tasks. A store that outlives the process makes task ids good for longer than the process, and several
/// instances may share one: a task whose work ended with its process is reported as failed once it has not been
/// saved for a minute.
pub trait TaskStore: Send + Sync + 'static {
    /// Keeps a task, new or changed. Once this is done, [`Self::find`] gives it.
    fn save(&self, task: TaskRecord) -> Stored<'_, ()>;

    /// The task of this name.
    fn find<'a>(&'a self, id: &'a str) -> Stored<'a, Option<TaskRecord>>;

    /// Tasks whose names come after `after`, in the order of their names: those of `principal`, or of `session` if
    /// that is `None`.
    fn list<'a>(
        &'a self,
        principal: Option<&'a str>,
        session: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Stored<'a, Vec<TaskRecord>>;

    /// Forgets a task.
    fn remove<'a>(&'a self, id: &'a str) -> Stored<'a, ()>;
}

/// Tasks in memory.
#[derive(Default)]
pub(crate) struct MemoryTasks(Mutex<BTreeMap<String, TaskRecord>>);

impl TaskStore for MemoryTasks {
    fn save(&self, task: TaskRecord) -> Stored<'_, ()> {
        let mut tasks = lock(&self.0);
        // With each new task, so that results do not stay for as long as nobody asks.
        if !tasks.contains_key(&task.id) {
            let now = task.updated;
            tasks.retain(|_, task| !task.is_expired(now));
        }
        let full = tasks.len() >= MAX_TASKS && !tasks.contains_key(&task.id);
        if !full {
            tasks.insert(task.id.clone(), task);
        }
        drop(tasks);
        let failed =
            || Err(crate::Error::tool(format!("{MAX_TASKS} tasks are kept already: try again later")));
        Box::pin(std::future::ready(if full { failed() } else { Ok(()) }))
    }

    fn find<'a>(&'a self, id: &'a str) -> Stored<'a, Option<TaskRecord>> {
        Box::pin(std::future::ready(Ok(lock(&self.0).get(id).cloned())))
    }

    fn list<'a>(
        &'a self,
        principal: Option<&'a str>,
        session: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Stored<'a, Vec<TaskRecord>> {
        let tasks = lock(&self.0);
        let mine = |task: &&TaskRecord| match principal {
            Some(_) => task.principal.as_deref() == principal,
            None => task.principal.is_none() && task.session == session,
        };
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let range = tasks.range::<str, _>((from, std::ops::Bound::Unbounded));
        let page = range.map(|(_, task)| task).filter(mine).take(most).cloned().collect();
        Box::pin(std::future::ready(Ok(page)))
    }

    fn remove<'a>(&'a self, id: &'a str) -> Stored<'a, ()> {
        lock(&self.0).remove(id);
        Box::pin(std::future::ready(Ok(())))
    }
}
