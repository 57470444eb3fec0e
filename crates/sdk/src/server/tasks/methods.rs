//! Methods of MCP tasks: get, update, cancel, list.

use std::collections::BTreeMap;
use std::sync::Arc;

use linchpin_protocol::encode::to_value;
use linchpin_protocol::model::{
    CancelTaskResult, EmptyResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult, Meta,
    RelatedTaskMetadata, TaskParams, TaskStatus, UpdateTaskParams, key,
};
use linchpin_protocol::{Era, Error as ProtocolError, Revision};

use super::super::Service;
use super::super::identity::{Identity, check_scopes};
use super::running_task::{RunningTask, outcome_detail};
use super::store::{TaskOutcome, TaskRecord};
use super::{TaskRegistry, check_extension, is_supported};
use crate::lock::lock;
use crate::server::request::result::UnencodedResult;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::RequestFuture;
use crate::{Error, Result};

/// Number of tasks on one page of a list.
const PAGE_SIZE: usize = 100;

/// Rejects task methods if the server has no tasks or the client has not negotiated them.
fn check_supported(scope: &RequestScope<'_>) -> Result<()> {
    if !is_supported(scope) {
        return Err(ProtocolError::MethodNotFound(scope.method.to_owned()).into());
    }
    match scope.revision.era() {
        Era::Stateless => Ok(check_extension(scope)?),
        Era::Session => Ok(()),
    }
}

fn unknown_task(id: &str) -> Error {
    ProtocolError::invalid("/taskId", format!("there is no task {id}, or it has expired")).into()
}

/// Checks that the caller has the scopes of the task's tool. A task may outlive the token that started it.
fn permit(identity: Option<&Identity>, record: &TaskRecord) -> Result<()> {
    Ok(check_scopes(identity, &record.scopes)?)
}

impl TaskRegistry {
    fn find_running(&self, id: &str, principal: Option<&str>) -> Option<Arc<RunningTask>> {
        lock(&self.running).get(id).filter(|running| running.belongs_to(principal)).cloned()
    }
}

/// Loads a task that does not run in this process from the task store.
async fn find_stored(service: &Service, id: &str) -> Result<TaskRecord> {
    let record = service.tasks().store.find(id).await?;
    let record = record.filter(|record| record.principal.as_deref() == service.principal());
    let mut record = record.ok_or_else(|| unknown_task(id))?;
    if record.is_expired(service.settings().clock.since_epoch()) {
        service.tasks().store.remove(id).await?;
        return Err(unknown_task(id));
    }
    if !record.status.is_terminal() && record.alive_until < service.settings().clock.since_epoch() {
        let error = ProtocolError::Internal(
            "the server was restarted while the task ran, so its result is lost".into(),
        );
        record.status = TaskStatus::Failed;
        record.message = Some(error.to_string());
        record.outcome =
            Some(TaskOutcome::Error(linchpin_protocol::wire::error_object(&error, Revision::LATEST)));
        service.tasks().store.save(record.clone()).await?;
    }
    Ok(record)
}

pub(crate) fn get(scope: &RequestScope<'_>, params: TaskParams) -> Result<RequestFuture> {
    check_supported(scope)?;
    let (service, identity) = (scope.service.clone(), scope.connection.identity().cloned());
    if let Some(running) = service.tasks().find_running(&params.task_id, service.principal()) {
        permit(identity.as_deref(), &running.record())?;
        let state = running.state();
        if !state.task.status.is_terminal() {
            return Ok(RequestFuture::ready(Ok(UnencodedResult::body(state))));
        }
    }
    let work = async move {
        let record = find_current(&service, &params.task_id).await?;
        permit(identity.as_deref(), &record)?;
        Ok(GetTaskResult { task: record.to_task(), detail: outcome_detail(&record), meta: None })
    };
    Ok(RequestFuture::pending(work, UnencodedResult::body))
}

/// Returns the current state of a task, running here or stored.
async fn find_current(service: &Service, id: &str) -> Result<TaskRecord> {
    match service.tasks().find_running(id, service.principal()) {
        Some(running) => Ok(running.record()),
        None => find_stored(service, id).await,
    }
}

/// Returns the result of a task once it has ended (core tasks).
pub(crate) fn payload(scope: &RequestScope<'_>, params: TaskParams) -> Result<RequestFuture> {
    check_supported(scope)?;
    let (service, revision) = (scope.service.clone(), scope.revision);
    let identity = scope.connection.identity().cloned();
    let work = async move {
        let id = params.task_id;
        permit(identity.as_deref(), &find_current(&service, &id).await?)?;
        let record = match service.tasks().find_running(&id, service.principal()) {
            Some(running) => running.wait_for_end().await,
            None => find_stored(&service, &id).await?,
        };
        let related = RelatedTaskMetadata { task_id: id.clone() };
        let related = (key::RELATED_TASK.to_owned(), to_value(&related, revision));
        match record.outcome {
            Some(TaskOutcome::Result(json)) => {
                let mut result: GetTaskPayloadResult = serde_json::from_str(&json)?;
                let meta: &mut Meta = result.meta.get_or_insert_default();
                meta.extend([related]);
                Ok(result)
            }
            Some(TaskOutcome::Error(error)) => Err(match error.data {
                Some(data) => Error::rpc_with(error.code, error.message, data),
                None => Error::rpc(error.code, error.message),
            }),
            None => Err(ProtocolError::invalid("/taskId", format!("the task {id} was cancelled")).into()),
        }
    };
    Ok(RequestFuture::pending(work, UnencodedResult::body))
}

/// Delivers input responses to a task (extension). Responses without an open request are ignored.
pub(crate) fn update(scope: &RequestScope<'_>, params: UpdateTaskParams) -> Result<RequestFuture> {
    check_supported(scope)?;
    let (service, identity) = (scope.service.clone(), scope.connection.identity().cloned());
    if let Some(running) = service.tasks().find_running(&params.task_id, service.principal()) {
        permit(identity.as_deref(), &running.record())?;
        let responses: BTreeMap<String, String> =
            params.input_responses.into_iter().map(|(key, response)| (key, response.to_string())).collect();
        running.context.mailbox().check(&responses)?;
        running.context.mailbox().deliver(responses);
        return Ok(RequestFuture::ready(Ok(UnencodedResult::body(EmptyResult::new()))));
    }
    let work = async move {
        permit(identity.as_deref(), &find_stored(&service, &params.task_id).await?)?;
        Ok(EmptyResult::new())
    };
    Ok(RequestFuture::pending(work, UnencodedResult::body))
}

pub(crate) fn cancel(scope: &RequestScope<'_>, params: TaskParams) -> Result<RequestFuture> {
    check_supported(scope)?;
    let (service, era) = (scope.service.clone(), scope.revision.era());
    let work = async move {
        let running = service.tasks().find_running(&params.task_id, service.principal());
        let (was_cancelled, record) = match running {
            Some(running) => (running.cancel(&service).await, running.record()),
            None => (false, find_stored(&service, &params.task_id).await?),
        };
        if !was_cancelled && era == Era::Session {
            let reason = format!("the task has already ended as {}", record.status.as_str());
            return Err(ProtocolError::invalid("/taskId", reason).into());
        }
        Ok(CancelTaskResult { task: Some(record.to_task()), meta: None })
    };
    Ok(RequestFuture::pending(work, UnencodedResult::body))
}

/// Returns whether a text has the form of a task id: 32 hexadecimal digits.
fn is_task_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Lists the tasks of a client (core tasks).
pub(crate) fn list(scope: &RequestScope<'_>, cursor: Option<&str>) -> Result<RequestFuture> {
    check_supported(scope)?;
    let (service, session) = (scope.service.clone(), scope.connection.name().to_owned());
    if cursor.is_some_and(|cursor| !is_task_id(cursor)) {
        let reason = "unknown cursor: start again without a cursor";
        return Err(ProtocolError::invalid("/cursor", reason).into());
    }
    let after = cursor.map(str::to_owned);
    let work = async move {
        let tasks = service.tasks();
        let records =
            tasks.store.list(service.principal(), &session, after.as_deref(), PAGE_SIZE + 1).await?;
        let next_cursor = (records.len() > PAGE_SIZE).then(|| records[PAGE_SIZE - 1].id.clone());
        let now = service.settings().clock.since_epoch();
        let valid = records.into_iter().take(PAGE_SIZE).filter(|record| !record.is_expired(now));
        Ok(ListTasksResult { tasks: valid.map(|record| record.to_task()).collect(), next_cursor, meta: None })
    };
    Ok(RequestFuture::pending(work, UnencodedResult::body))
}
