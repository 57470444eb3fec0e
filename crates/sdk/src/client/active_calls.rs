//! Calls in flight that handle server requests or log messages themselves, and the rules that find the call a message
//! of the server belongs to.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::ClientCore;
use super::handlers::{CallLog, ServerRequestHandler};
use super::inbox::catch_hook_panic;
use crate::lock::lock;

/// Maximum number of tools of a connection that are remembered as asking tools. The oldest is forgotten first.
const MAX_ASKING_TOOLS: usize = 256;

/// How long a request of an unknown task waits for a call to become that task.
const TASK_ID_TIMEOUT: Duration = Duration::from_secs(5);

/// Callback of a call for the server's log messages.
type LogCallback = Box<dyn Fn(CallLog) + Send + Sync>;

/// Handlers of one call, and what identifies its messages.
#[derive(Default)]
pub(crate) struct CallScope {
    /// Name of the tool, if this is a tool call.
    pub(super) tool: Option<String>,
    pub(super) handler: Option<Arc<dyn ServerRequestHandler>>,
    pub(super) log: Option<LogCallback>,
    /// Called when the server runs the call as a task.
    pub(super) on_task: Option<Box<dyn Fn() + Send + Sync>>,
    /// Whether the call rejects server requests that may belong to another call.
    pub(super) is_strict: bool,
    /// Number of the last request that was sent for the call; 0 before the first.
    request_number: AtomicI64,
    /// Id of the task that the call became.
    task: OnceLock<String>,
}

impl CallScope {
    /// Creates the scope of a call of this tool, if it is a tool call, without handlers.
    pub(super) fn new(tool: Option<String>) -> Self {
        CallScope { tool, ..CallScope::default() }
    }

    /// Records the number of the request that the call now waits for.
    pub(super) fn set_request_number(&self, number: i64) {
        self.request_number.store(number, Ordering::Relaxed);
    }

    fn is_named_by(&self, origin: Origin<'_>) -> bool {
        match origin {
            Origin { task: Some(task), .. } if self.task.get().is_some_and(|id| id == task) => true,
            Origin { request: Some(number), .. } => self.request_number.load(Ordering::Relaxed) == number,
            _ => false,
        }
    }

    /// Passes a log message to the callback of the call.
    pub(super) fn on_log(&self, message: CallLog) {
        if let Some(callback) = &self.log {
            catch_hook_panic(|| callback(message));
        }
    }
}

/// What a message of the server says about the call that it belongs to.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin<'a> {
    /// Number of the request on whose response stream the message arrived.
    pub(super) request: Option<i64>,
    /// Related task in the metadata of the message.
    pub(super) task: Option<&'a str>,
}

/// Call that a server request belongs to.
pub(super) enum Attribution {
    /// The request belongs to this call, or most probably does.
    Call(Arc<dyn ServerRequestHandler>, OpenRequest),
    /// The request belongs to no call with a handler of its own.
    Connection,
    /// The request may belong to any of this many calls, one of which accepts only its own requests.
    Ambiguous(usize),
    /// The request belongs to a task that none of several calls has become yet.
    UnknownTask,
}

/// Registry of the calls in flight that have a [`CallScope`], oldest first.
#[derive(Default)]
pub(super) struct ActiveCalls {
    calls: Vec<ActiveCall>,
    last_id: u64,
    /// Tools whose calls have sent requests that did not name their call.
    asking_tools: VecDeque<String>,
    /// Signal that a call has become a task or has ended.
    changed: Arc<Notify>,
}

struct ActiveCall {
    id: u64,
    scope: Arc<CallScope>,
    /// Signals that end the open server requests of the call.
    open_requests: Vec<Arc<Notify>>,
}

impl ActiveCalls {
    pub(super) fn is_asking_tool(&self, tool: &str) -> bool {
        self.asking_tools.iter().any(|asking| asking == tool)
    }

    fn remember_asking_tool(&mut self, tool: &str) {
        if !self.is_asking_tool(tool) {
            if self.asking_tools.len() >= MAX_ASKING_TOOLS {
                self.asking_tools.pop_front();
            }
            self.asking_tools.push_back(tool.to_owned());
        }
    }

    /// Returns the position of the call that a server request names, or `None` if it belongs to no call with a handler.
    /// The error is the candidates, oldest first, if the request does not name its call.
    fn find_named(&self, origin: Origin<'_>) -> Result<Option<usize>, Vec<usize>> {
        let named = self.calls.iter().position(|call| call.scope.is_named_by(origin));
        if named.is_some() || origin.request.is_some() {
            return Ok(named.filter(|at| self.calls[*at].scope.handler.is_some()));
        }
        // A request of an unknown task belongs to a call whose task id has not been processed yet.
        let may_own = |scope: &CallScope| {
            scope.handler.is_some() && (origin.task.is_none() || scope.task.get().is_none())
        };
        Err((0..self.calls.len()).filter(|at| may_own(&self.calls[*at].scope)).collect())
    }

    /// Guesses which of the candidates a request belongs to.
    fn guess(&self, candidates: Vec<usize>) -> Option<usize> {
        // `min_by_key` returns the first, so the oldest, of equal candidates.
        candidates.into_iter().min_by_key(|at| {
            let call = &self.calls[*at];
            let is_asking = call.scope.tool.as_deref().is_some_and(|tool| self.is_asking_tool(tool));
            (call.open_requests.len(), !is_asking)
        })
    }

    /// Remembers the tool of the candidates as an asking tool if all of them call it: the request certainly comes from
    /// that tool.
    fn learn(&mut self, candidates: &[usize]) {
        let first = candidates.first().and_then(|at| self.calls[*at].scope.tool.clone());
        if let Some(tool) = first.filter(|tool| self.all_call(candidates, tool)) {
            self.remember_asking_tool(&tool);
        }
    }

    fn all_call(&self, candidates: &[usize], tool: &str) -> bool {
        candidates.iter().all(|at| self.calls[*at].scope.tool.as_deref() == Some(tool))
    }

    /// Returns the calls that receive a log message, and whether the message names its call.
    pub(super) fn log_receivers(&self, origin: Origin<'_>) -> (Vec<Arc<CallScope>>, bool) {
        let named = self.calls.iter().find(|call| call.scope.is_named_by(origin));
        let is_attributed = named.is_some() || origin.request.is_some() || origin.task.is_some();
        let all = self.calls.iter().filter(|_| !is_attributed);
        let receivers = named.into_iter().chain(all).filter(|call| call.scope.log.is_some());
        (receivers.map(|call| call.scope.clone()).collect(), is_attributed)
    }
}

impl ClientCore {
    /// Finds the call that a server request belongs to and counts the request as open until the [`OpenRequest`] is
    /// dropped. If `waits_for_task` is set, a request of a task that several calls could have become is not guessed.
    pub(super) fn attribute_request(
        self: &Arc<Self>,
        origin: Origin<'_>,
        waits_for_task: bool,
    ) -> Attribution {
        let mut active = lock(&self.active_calls);
        let found = match active.find_named(origin) {
            Ok(found) => found,
            Err(candidates) => {
                let is_certain = candidates.len() < 2;
                if origin.task.is_none() {
                    active.learn(&candidates);
                } else if !is_certain && waits_for_task {
                    return Attribution::UnknownTask;
                }
                if !is_certain && candidates.iter().any(|at| active.calls[*at].scope.is_strict) {
                    return Attribution::Ambiguous(candidates.len());
                }
                active.guess(candidates)
            }
        };
        let Some(call) = found.map(|at| &mut active.calls[at]) else { return Attribution::Connection };
        let Some(handler) = call.scope.handler.clone() else { return Attribution::Connection };
        let call_ended = Arc::new(Notify::new());
        call.open_requests.push(call_ended.clone());
        Attribution::Call(handler, OpenRequest { core: self.clone(), call: call.id, call_ended })
    }

    /// Attributes a request of a task once a call has become that task. A server may send it together with the
    /// response that creates the task, before the call has processed that response.
    pub(super) async fn attribute_task_request(self: &Arc<Self>, origin: Origin<'_>) -> Attribution {
        let changed = lock(&self.active_calls).changed.clone();
        let known = async {
            loop {
                let mut change = pin!(changed.notified());
                change.as_mut().enable();
                match self.attribute_request(origin, true) {
                    Attribution::UnknownTask => change.await,
                    attribution => return attribution,
                }
            }
        };
        match tokio::time::timeout(TASK_ID_TIMEOUT, known).await {
            Ok(attribution) => attribution,
            Err(_) => self.attribute_request(origin, false),
        }
    }

    /// Records the id of the task that a call became.
    pub(super) fn set_task(&self, scope: &CallScope, id: &str) {
        let _ = scope.task.set(id.to_owned());
        lock(&self.active_calls).changed.notify_waiters();
    }

    /// Registers a call with a scope of its own until the guard is dropped.
    pub(super) fn register_call(self: &Arc<Self>, scope: Option<&Arc<CallScope>>) -> Option<ActiveCallGuard> {
        let scope = scope?.clone();
        let mut active = lock(&self.active_calls);
        active.last_id += 1;
        let id = active.last_id;
        active.calls.push(ActiveCall { id, scope, open_requests: Vec::new() });
        Some(ActiveCallGuard { core: self.clone(), id })
    }
}

/// Server request that a call handles.
pub(super) struct OpenRequest {
    core: Arc<ClientCore>,
    call: u64,
    /// Signal that the call has ended.
    pub(super) call_ended: Arc<Notify>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut active = lock(&self.core.active_calls);
        if let Some(call) = active.calls.iter_mut().find(|call| call.id == self.call) {
            call.open_requests.retain(|signal| !Arc::ptr_eq(signal, &self.call_ended));
        }
    }
}

/// Guard of a registered call. When it is dropped, the open server requests of the call end.
pub(super) struct ActiveCallGuard {
    core: Arc<ClientCore>,
    id: u64,
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        let mut active = lock(&self.core.active_calls);
        let ended = active.calls.iter().position(|call| call.id == self.id).map(|at| active.calls.remove(at));
        active.changed.notify_waiters();
        drop(active); // the handlers of the call may be dropped with it
        for request in ended.into_iter().flat_map(|call| call.open_requests) {
            request.notify_one();
        }
    }
}
