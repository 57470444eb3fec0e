//! Handles of calls: the events of a call, its outcome and its cancellation, and what the caller offers to the call.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use linchpin::model::{LogLevel, LogParams, Root};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::admit::{CallRequest, StartedCall, SubmittedCall, outcome_of, unknown_outcome_error};
use super::calling_client::CallingClient;
use super::plan::PlannedCall;
use super::records::CallView;
use super::server_requests::{ServerReply, ServerRequestKind, ServerRequestView};
use crate::actor::Actor;
use crate::error::Result;
use crate::hub::calls::Calls;
use crate::id::{CallId, ServerRequestId, TenantId};
use crate::lock::lock;
use crate::store::CallStatus;

/// Maximum number of events that wait for the holder of a call handle. Further progress and log messages are dropped.
const MAX_QUEUED_EVENTS: usize = 256;

/// Outcome of a call that has not finished.
type Outcome = Pin<Box<dyn Future<Output = Result<CallView>> + Send>>;

/// Options of a call: what its caller offers to the server while the call runs.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// Kinds of server requests that the caller replies to. The hub replies to the others at once.
    pub replies: Vec<ServerRequestKind>,
    /// Roots that the server may read. Default: none.
    pub roots: Vec<Root>,
    /// Client whose request is the call, if it takes part in the call while it runs.
    pub client: Option<Arc<dyn CallingClient>>,
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions").field("replies", &self.replies).finish_non_exhaustive()
    }
}

/// Progress of a call, as its server reports it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallProgress {
    /// Amount of work done.
    pub progress: f64,
    /// Total amount of work, if it is known.
    pub total: Option<f64>,
    /// Description of the current work, with secrets redacted.
    pub message: Option<String>,
}

/// Event of a call that the holder of its handle receives.
#[derive(Debug, Clone)]
pub enum CallEvent {
    /// The status of the call has changed to one that is not final.
    Status(CallStatus),
    /// The server reports progress.
    Progress(CallProgress),
    /// The server sends a log message. In a session over stdio it may belong to another call.
    Log(Box<LogParams>),
    /// A server request waits for a reply.
    ServerRequestOpened(Box<ServerRequestView>),
    /// A server request was replied to, or its call has ended.
    ServerRequestClosed(ServerRequestId),
    /// The call has finished, or its outcome is unknown. This is the last event.
    Finished(Result<Box<CallView>>),
}

/// Submitted call, which may still wait for an approval: yields its events and its outcome. Dropping the handle does not
/// cancel the call.
#[must_use = "the events of a call are read from its handle"]
pub struct CallHandle {
    calls: Arc<Calls>,
    actor: Actor,
    id: CallId,
    events: mpsc::Receiver<CallEvent>,
    /// `None` once the outcome was returned.
    outcome: Option<Outcome>,
}

impl CallHandle {
    /// Returns the id of the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Waits for the next event; `None` after [`CallEvent::Finished`].
    pub async fn next(&mut self) -> Option<CallEvent> {
        let outcome = self.outcome.as_mut()?;
        let finished = tokio::select! {
            biased;
            Some(event) = self.events.recv() => return Some(event),
            finished = outcome => finished,
        };
        // Events that were sent before the outcome come first.
        if let Ok(event) = self.events.try_recv() {
            self.outcome = Some(Box::pin(std::future::ready(finished)));
            return Some(event);
        }
        self.outcome = None;
        Some(CallEvent::Finished(finished.map(Box::new)))
    }

    /// Waits until the call has finished, including a pending approval, and discards the remaining events.
    pub async fn finish(mut self) -> Result<CallView> {
        loop {
            match self.next().await {
                Some(CallEvent::Finished(finished)) => return finished.map(|view| *view),
                Some(_) => {}
                None => return self.calls.call(self.actor, self.id).await,
            }
        }
    }

    /// Replies to an open server request of the call.
    pub async fn reply(&self, request: ServerRequestId, reply: ServerReply) -> Result<()> {
        self.calls.reply_to_server_request(self.actor, request, reply).await
    }

    /// Cancels the call.
    pub async fn cancel(&self) -> Result<CallView> {
        self.calls.cancel_call(self.actor, self.id).await
    }
}

impl std::fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Calls {
    /// Admits a call and starts it, unless it is rejected or waits for an approval. Returns its handle.
    pub async fn start(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        options: CallOptions,
    ) -> Result<CallHandle> {
        let (sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let caller = CallerChannel { options: Arc::new(options), events: Some(sender) };
        let submitted = self.submit(actor, request, caller).await?;
        let calls = self.clone();
        let (id, outcome) = match submitted {
            SubmittedCall::Recorded(view) => {
                let (id, calls) = (view.id, calls.clone());
                let outcome: Outcome = Box::pin(async move {
                    if view.status.is_final() { Ok(*view) } else { calls.wait(actor, id).await }
                });
                (id, outcome)
            }
            SubmittedCall::Running(id, call) => {
                // The holder of the handle may wait for something else than its events.
                let outcome: Outcome = Box::pin(self.outcome_in_task(id, call));
                (id, outcome)
            }
        };
        Ok(CallHandle { calls, actor, id, events, outcome: Some(outcome) })
    }

    /// Runs a started call in a task and returns its outcome. The call also runs while the outcome is not polled.
    pub(super) fn outcome_in_task(
        &self,
        id: CallId,
        call: StartedCall,
    ) -> impl Future<Output = Result<CallView>> + Send + use<> {
        let (sender, outcome) = oneshot::channel();
        self.context.tasks.spawn(async move {
            let _ = sender.send(outcome_of(id, call).await); // the caller may be gone
        });
        async move { outcome.await.unwrap_or_else(|_| Err(unknown_outcome_error(id))) }
    }
}

/// What the caller of a call offers to the running call: its options, and the queue of its events.
#[derive(Debug, Clone, Default)]
pub(in crate::hub) struct CallerChannel {
    pub(in crate::hub) options: Arc<CallOptions>,
    /// Queue of the call handle, if there is one.
    events: Option<mpsc::Sender<CallEvent>>,
}

impl CallerChannel {
    /// Creates the channel of a caller without a call handle.
    pub(in crate::hub) fn new(options: CallOptions) -> Self {
        CallerChannel { options: Arc::new(options), events: None }
    }

    /// Returns the minimum level of the log messages that the caller receives; `None` if it receives none.
    pub(in crate::hub) fn log_level(&self) -> Option<LogLevel> {
        match &self.options.client {
            Some(client) => client.log_level(),
            None => self.events.is_some().then_some(LogLevel::Info),
        }
    }

    /// Reports progress of the call to its client and to the holder of its handle.
    pub(in crate::hub) fn report_progress(&self, progress: &CallProgress) {
        if let Some(client) = &self.options.client {
            client.progress(progress);
        }
        self.report(CallEvent::Progress(progress.clone()));
    }

    /// Reports a log message of the server to the client of the call and to the holder of its handle.
    pub(in crate::hub) fn report_log(&self, message: LogParams) {
        match &self.options.client {
            Some(client) => client.log(message),
            None => self.report(CallEvent::Log(Box::new(message))),
        }
    }

    /// Adds an event to the queue of the call handle. If the queue is full, the event is dropped.
    pub(in crate::hub) fn report(&self, event: CallEvent) {
        if let Some(events) = &self.events {
            let _ = events.try_send(event); // the handle may have been dropped
        }
    }

    /// Adds an event to the queue of the call handle; waits while the queue is full.
    pub(in crate::hub) async fn report_reliably(&self, event: CallEvent) {
        if let Some(events) = &self.events {
            let _ = events.send(event).await; // the handle may have been dropped
        }
    }
}

/// Callers of the calls that wait for an approval. Another hub of a cluster that approves a call does not know its
/// caller, so that the call then runs without its options.
#[derive(Default)]
pub(in crate::hub) struct PendingCallers(Mutex<HashMap<(TenantId, CallId), (Timestamp, CallerChannel)>>);

impl PendingCallers {
    /// Adds the caller of a call whose approval expires at a time. Removes the callers of expired approvals.
    pub(super) fn insert(&self, tenant: TenantId, plan: &PlannedCall, now: Timestamp, expires: Timestamp) {
        let (caller, mut callers) = (&plan.caller, lock(&self.0));
        callers.retain(|_, (expires, _)| *expires > now);
        let CallOptions { replies, roots, client } = &*caller.options;
        if caller.events.is_some() || client.is_some() || !replies.is_empty() || !roots.is_empty() {
            callers.insert((tenant, plan.id), (expires, caller.clone()));
        }
    }

    /// Replaces the caller of a pending call, whose client was lost. `expires` is the time at which its approval expires
    /// at the latest.
    pub(super) fn replace(&self, tenant: TenantId, call: CallId, caller: &CallerChannel, expires: Timestamp) {
        let mut callers = lock(&self.0);
        let expires = callers.get(&(tenant, call)).map_or(expires, |(expires, _)| *expires);
        callers.insert((tenant, call), (expires, caller.clone()));
    }

    /// Removes the caller of a pending call if it is this one. Returns whether it was.
    pub(super) fn remove_own(&self, tenant: TenantId, call: CallId, caller: &CallerChannel) -> bool {
        let mut callers = lock(&self.0);
        let is_own =
            |(_, current): &(Timestamp, CallerChannel)| Arc::ptr_eq(&current.options, &caller.options);
        let removed = callers.get(&(tenant, call)).is_some_and(is_own);
        if removed {
            callers.remove(&(tenant, call));
        }
        removed
    }

    /// Returns the caller of a pending call; one without options if it is not known.
    pub(super) fn find(&self, tenant: TenantId, call: CallId) -> CallerChannel {
        lock(&self.0).get(&(tenant, call)).map(|(_, caller)| caller.clone()).unwrap_or_default()
    }

    /// Removes the caller of a call that was started or ended.
    pub(super) fn remove(&self, tenant: TenantId, call: CallId) {
        lock(&self.0).remove(&(tenant, call));
    }
}
