//! Tool calls that run as MCP tasks, which are created immediately and polled later. In one revision the client
//! requests a task; from the next revision on, tasks are an extension and the server decides.

mod methods;
mod running_task;
mod store;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use linchpin_protocol::encode::Fields;
use linchpin_protocol::model::{
    ClientCapabilities, CreateTaskResult, Meta, ResultBody, TaskMetadata, TaskStatus, TaskSupport,
    TasksCapability, extension,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{self, CallTool};
use linchpin_protocol::{Era, Error as ProtocolError};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

pub use store::{StoreFuture, TaskOutcome, TaskRecord, TaskStore};

use self::running_task::RunningTask;
use self::store::MemoryTaskStore;
use super::catalog::Catalog;
use super::definitions::tool::ToolEntry;
use super::identity::check_scopes;
use super::request::context::Context;
use super::request::dispatch;
use super::request::result::UnencodedResult;
use super::request::scope::RequestScope;
use super::request::work::{RequestFuture, RequestOutcome};
use super::{BoxFuture, Service, spawn};
use crate::Result;
use crate::lock::lock;

/// Default lifetime of a task.
const DEFAULT_TTL: Duration = Duration::from_hours(1);
/// Maximum lifetime of a task.
const MAX_TTL: Duration = Duration::from_hours(24);
/// Default interval at which a client should poll a task.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of tasks that run at the same time.
const MAX_RUNNING_TASKS: usize = 1_024;

/// MCP tasks of a server: those that run in this process, and the store of all.
pub(crate) struct TaskRegistry {
    store: Arc<dyn TaskStore>,
    poll_interval: Duration,
    running: Mutex<HashMap<String, Arc<RunningTask>>>,
}

impl Default for TaskRegistry {
    fn default() -> Self {
        TaskRegistry {
            store: Arc::new(MemoryTaskStore::default()),
            poll_interval: DEFAULT_POLL_INTERVAL,
            running: Mutex::default(),
        }
    }
}

impl TaskRegistry {
    pub(crate) fn set_store(&mut self, store: Arc<dyn TaskStore>) {
        self.store = store;
    }

    pub(crate) fn set_poll_interval(&mut self, interval: Duration) {
        self.poll_interval = interval;
    }

    /// Returns whether a task runs here that the sender of a request may see.
    pub(crate) fn is_running(&self, id: &str, scope: &RequestScope<'_>) -> bool {
        let running = lock(&self.running).get(id).cloned();
        running.is_some_and(|running| {
            running.belongs_to(scope.service.principal())
                && check_scopes(scope.identity(), &running.record().scopes).is_ok()
        })
    }
}

/// Returns the tasks capability, if a tool can run as a task.
pub(crate) fn capabilities(catalog: &Catalog) -> Option<TasksCapability> {
    let any = catalog.tools.iter().any(|tool| tool.task_support() != TaskSupport::Forbidden);
    any.then(|| TasksCapability {
        list: Some(Map::new()),
        cancel: Some(Map::new()),
        requests: Some([("tools".to_owned(), Map::from_iter([("call".to_owned(), json!({}))]))].into()),
    })
}

/// Returns the extensions of the server, with the forwarded ones and, if a tool can run as a task, the tasks extension.
pub(crate) fn extensions(catalog: &Catalog, others: Option<&Meta>, forwarded: Option<&Meta>) -> Option<Meta> {
    let mut all = others.cloned();
    if let Some(forwarded) = forwarded {
        all.get_or_insert_default().extend(forwarded.clone());
    }
    if capabilities(catalog).is_some() {
        all.get_or_insert_default().entry(extension::TASKS).or_insert_with(|| json!({}));
    }
    all
}

pub(crate) use methods::{cancel, get, list, payload, update};

/// Returns whether this server supports tasks.
pub(crate) fn is_supported(scope: &RequestScope<'_>) -> bool {
    capabilities(&scope.service.catalog()).is_some()
}

fn offers_extension(client: &ClientCapabilities) -> bool {
    client.extensions.as_ref().is_some_and(|extensions| extensions.contains_key(extension::TASKS))
}

/// Returns the error for a client that lacks the tasks extension and needs it.
pub(crate) fn missing_extension() -> ProtocolError {
    let required: Value = json!({ "extensions": { (extension::TASKS): {} } });
    ProtocolError::MissingClientCapability { required }
}

/// Checks that the client supports the tasks extension.
pub(crate) fn check_extension(scope: &RequestScope<'_>) -> Result<(), ProtocolError> {
    if offers_extension(&scope.client.capabilities) { Ok(()) } else { Err(missing_extension()) }
}

/// Whether a tool call runs as a task.
enum TaskMode {
    /// The tool call runs within its request, not as a task.
    Inline,
    /// The tool call runs as a task with this lifetime.
    Task(Option<Duration>),
    /// The tool call becomes a task if it does not finish immediately.
    TaskIfSlow,
}

fn plan(
    scope: &RequestScope<'_>,
    tool: &ToolEntry,
    requested: Option<&str>,
) -> Result<TaskMode, ProtocolError> {
    let support = tool.task_support();
    if scope.revision.era() == Era::Stateless {
        return match (support, offers_extension(&scope.client.capabilities)) {
            (TaskSupport::Forbidden, _) | (TaskSupport::Optional, false) => Ok(TaskMode::Inline),
            (TaskSupport::Optional, true) => Ok(TaskMode::TaskIfSlow),
            (TaskSupport::Required, true) => Ok(TaskMode::Task(None)),
            (TaskSupport::Required, false) => Err(missing_extension()),
        };
    }
    let supports_tasks =
        scope.revision.has(Feature::CoreTasks) && capabilities(&scope.service.catalog()).is_some();
    match (support, requested.filter(|_| supports_tasks)) {
        (TaskSupport::Forbidden, Some(_)) => Err(ProtocolError::MethodNotFound(format!(
            "{}: the tool `{}` cannot run as a task, so omit \"task\"",
            scope.method, tool.name
        ))),
        (TaskSupport::Required, None) if supports_tasks => Err(ProtocolError::MethodNotFound(format!(
            "{}: the tool `{}` runs only as a task, so send \"task\": {{}} too",
            scope.method, tool.name
        ))),
        (_, None) => Ok(TaskMode::Inline),
        (_, Some(requested)) => {
            let requested: TaskMetadata = wire::decode(requested).map_err(|invalid| {
                ProtocolError::invalid(format!("/task{}", invalid.path), invalid.reason)
            })?;
            Ok(TaskMode::Task(requested.ttl.map(Duration::from_millis)))
        }
    }
}

/// Calls a tool, as a task if required.
pub(crate) fn call(
    scope: &RequestScope<'_>,
    tool: &Arc<ToolEntry>,
    call: &CallTool<'_>,
) -> Result<RequestFuture> {
    let (ttl, if_slow) = match plan(scope, tool, call.task)? {
        TaskMode::Inline => return Ok(dispatch::start_tool(scope, tool, call)),
        TaskMode::Task(ttl) => (ttl, false),
        TaskMode::TaskIfSlow => (None, true),
    };
    let service = scope.service;
    if lock(&service.tasks().running).len() >= MAX_RUNNING_TASKS {
        return Err(ProtocolError::Internal(format!(
            "{MAX_RUNNING_TASKS} tasks are running: try again later"
        ))
        .into());
    }
    let session = scope.connection.name().to_owned();
    let is_delayed = if_slow && !tool.task_delay.is_zero();
    if (tool.requests_input_first || is_delayed) && scope.revision.era() == Era::Stateless {
        let (context, work) = (scope.context(), dispatch::start_tool(scope, tool, call));
        return Ok(RequestFuture::WithOutcome(Box::pin(drive_before_task(
            context,
            tool.clone(),
            work,
            session,
        ))));
    }
    let id = super::random_id();
    // The request is answered immediately while the task continues, so the task needs its own cancellation.
    let task_scope = scope.fork();
    task_scope.set_tool(tool);
    let context = task_scope.context();
    scope.context.get().into_iter().for_each(|outer| context.copy_values(outer));
    context.set_task(&id);
    let mut work = dispatch::start_tool(&task_scope, tool, call);
    if if_slow && let Poll::Ready(outcome) = work.try_finish() {
        return Ok(RequestFuture::ready_outcome(outcome));
    }
    let record = record(service, tool, id, session, ttl);
    Ok(RequestFuture::pending(create(context, work, record), UnencodedResult::body))
}

fn record(
    service: &Service,
    tool: &ToolEntry,
    id: String,
    session: String,
    ttl: Option<Duration>,
) -> TaskRecord {
    let now = service.settings().clock.since_epoch();
    TaskRecord {
        id,
        principal: service.principal().map(str::to_owned),
        session,
        scopes: tool.scopes.to_vec(),
        status: TaskStatus::Working,
        message: None,
        created: now,
        updated: now,
        ttl: ttl.unwrap_or(DEFAULT_TTL).min(MAX_TTL),
        poll_interval: service.tasks().poll_interval,
        alive_until: now + running_task::LEASE_DURATION,
        outcome: None,
    }
}

/// Runs a tool call without a task for the task delay of the tool, and while it waits only for replies to its own server
/// requests. When it waits for anything else, it becomes a task.
async fn drive_before_task(
    context: Context,
    tool: Arc<ToolEntry>,
    mut work: RequestFuture,
    session: String,
) -> RequestOutcome {
    let (waiting, task_delay) = (context.clone(), tool.task_delay);
    let mut delay = std::pin::pin!(async move {
        let _ = tokio::time::timeout(task_delay, waiting.task_wanted()).await; // whichever comes first
    });
    let first = poll_fn(|cx| match work.poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if context.mailbox().has_open() => Poll::Pending,
        Poll::Pending if !tool.task_delay.is_zero() => delay.as_mut().poll(cx).map(|()| None),
        Poll::Pending => Poll::Ready(None),
    });
    if let Some(outcome) = first.await {
        return outcome;
    }
    let id = super::random_id();
    context.set_task(&id);
    let record = record(context.service(), &tool, id, session, None);
    RequestOutcome::from(create(context, work, record).await.map(UnencodedResult::body))
}

/// Stores a new task and prepares its handler to run.
async fn create(context: Context, work: RequestFuture, record: TaskRecord) -> Result<CreatedTask> {
    let service = context.service().clone();
    service.tasks().store.save(record.clone()).await?;
    let task = record.to_task();
    let running = Arc::new(RunningTask::new(context, record));
    lock(&service.tasks().running).insert(task.task_id.clone(), running.clone());
    let result = CreateTaskResult { task, meta: None };
    Ok(CreatedTask {
        result,
        run: Some(Box::pin(running_task::run(service, running, work))),
        runtime: Handle::current(),
    })
}

/// Result of a call that runs as a task; it starts the task. The task starts when this is dropped, after the response
/// was written: a client cannot attribute messages of a task that it does not know yet.
struct CreatedTask {
    result: CreateTaskResult,
    run: Option<BoxFuture<()>>,
    runtime: Handle,
}

impl ResultBody for CreatedTask {
    fn encode_body(&self, fields: &mut Fields<'_, '_>) {
        self.result.encode_body(fields);
    }

    fn meta(&self) -> Option<&Meta> {
        self.result.meta()
    }

    fn result_type(&self) -> &'static str {
        self.result.result_type()
    }
}

impl Drop for CreatedTask {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            spawn(&self.runtime, run);
        }
    }
}
