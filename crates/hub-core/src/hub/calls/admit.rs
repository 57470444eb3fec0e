//! Call admission: rate limit of the caller → tool lookup → policy → arguments → rate limit of the server → approval.
//! Admitted calls are sent by [`execute`](super::execute); nothing else calls a tool.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::arguments::CallArguments;
use super::call_start::{CallBasis, CallStart, FailedStart};
use super::handle::{CallEvent, CallOptions, CallerChannel};
use super::plan::PlannedCall;
use super::records::CallView;
use super::target::CallTarget;
use crate::actor::Actor;
use crate::approval_rule::check_session;
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::audit::rejections::AuditRejection;
use crate::hub::audit::repeated_events::RepeatedEvent as _;
use crate::hub::calls::Calls;
use crate::hub::calls::limits::ConsumedLimits;
use crate::hub::event_payloads;
use crate::hub::registry::tools::slug_in;
use crate::id::{ApprovalId, CallId};
use crate::lock::lock;
use crate::policy::{PolicyDecision, PolicyReason};
use crate::rate_limit::concurrency_limited;
use crate::store::{Approval, ApprovalStatus, Batch, CallRecord, CallStatus, CountedCalls, StoreChange};
use crate::task_set::DetachOnDrop;
use crate::telemetry;
use crate::trace_context::TraceContext;

/// Maximum size of the arguments of a call as JSON, in bytes.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;
/// Maximum length of the stored reason of a rejected call, in characters.
const MAX_REASON_LEN: usize = 2_000;
/// Maximum number of running calls of one subject.
const MAX_RUNNING_CALLS: usize = 256;
/// Maximum number of calls of one subject that wait for an approval.
const MAX_PENDING_APPROVALS: u32 = 100;

/// How a caller names a tool: by qualified name, or by server and upstream name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolRef {
    /// Qualified name, such as `mcp_demo__add`.
    Qualified(String),
    /// Upstream name of a tool, with its server.
    Upstream {
        /// Id or slug of the server that has the tool.
        server: String,
        /// Upstream name of the tool.
        tool: String,
    },
}

impl ToolRef {
    /// Adds the names that the caller sent to an audit entry.
    fn add_to_entry(&self, entry: AuditEntry) -> AuditEntry {
        match self {
            ToolRef::Qualified(name) => entry.with("tool", name.as_str()),
            ToolRef::Upstream { server, tool } => {
                entry.with("server", server.as_str()).with("tool", tool.as_str())
            }
        }
    }

    /// Returns the id or slug of the server that has the tool.
    fn server(&self) -> Option<&str> {
        match self {
            ToolRef::Qualified(name) => slug_in(name),
            ToolRef::Upstream { server, .. } => Some(server),
        }
    }
}

/// Tool and arguments of a call that a caller requests from the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRequest {
    /// Qualified or upstream name of the tool to call.
    pub tool: ToolRef,
    /// Arguments; must be an object.
    pub arguments: CallArguments,
    /// Session or conversation of the caller, which approval rules can be limited to.
    pub session: Option<String>,
    /// Name or id of the agent with whose credential a user calls the tool. Only for servers with credentials per agent.
    pub as_agent: Option<String>,
    /// Trace that the call belongs to; the server receives it.
    pub trace: Option<TraceContext>,
}

impl CallRequest {
    /// Creates the request of a call with the caller's own credential, outside any session.
    pub fn new(tool: ToolRef, arguments: impl Into<CallArguments>) -> Self {
        CallRequest { tool, arguments: arguments.into(), session: None, as_agent: None, trace: None }
    }
}

/// Call whose start is recorded. Yields its outcome. It runs while the future is polled, and if the future is dropped in a
/// task.
pub(in crate::hub) type StartedCall = DetachOnDrop<Option<Box<CallView>>>;

/// Request of a call that has passed or failed its admission.
pub(super) enum SubmittedCall {
    /// The call waits for an approval, or was rejected: its record.
    Recorded(Box<CallView>),
    /// The call runs.
    Running(CallId, StartedCall),
}

impl SubmittedCall {
    fn recorded(view: CallView) -> Self {
        SubmittedCall::Recorded(Box::new(view))
    }
}

impl Calls {
    /// Calls a tool and returns the call record, also if the policy or a user denies the call. With `wait`, waits for a
    /// pending approval.
    pub async fn call_tool(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        wait: bool,
    ) -> Result<CallView> {
        let call = self.submit_call(actor, request, CallOptions::default(), wait).await?;
        if wait && !call.status.is_final() { Box::pin(self.wait(actor, call.id)).await } else { Ok(call) }
    }

    /// Like [`Self::call_tool`], but does not wait for an approval.
    pub async fn submit_call(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        options: CallOptions,
        wait: bool,
    ) -> Result<CallView> {
        match self.submit(actor, request, CallerChannel::new(options)).await? {
            SubmittedCall::Recorded(view) => Ok(*view),
            SubmittedCall::Running(id, call) if wait => outcome_of(id, call).await,
            SubmittedCall::Running(id, _) => Box::pin(self.call(actor, id)).await,
        }
    }

    /// Admits a call and starts it, unless it is rejected or waits for an approval.
    pub(super) async fn submit(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        caller: CallerChannel,
    ) -> Result<SubmittedCall> {
        let retry = self.context.store.shared().map(|_| (request.clone(), caller.clone()));
        let server = request.tool.server().map(str::to_owned);
        let mut consumed = ConsumedLimits::default();
        match (self.try_call(actor, request, caller, &mut consumed).await, retry) {
            // Another hub has just changed a document that the decision is based on: decide again, once.
            (Err(error), Some((request, caller))) if error.code() == "version_conflict" => {
                self.try_call(actor, request, caller, &mut consumed).await
            }
            (Err(error), _) => Err(match server {
                Some(server) => Box::pin(self.registry.explain_missing_tool(actor, &server, error)).await,
                None => error,
            }),
            (result, _) => result,
        }
    }

    async fn try_call(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        caller: CallerChannel,
        consumed: &mut ConsumedLimits,
    ) -> Result<SubmittedCall> {
        if !request.arguments.value().is_object() {
            return Err(Error::invalid("arguments", "must be an object"));
        }
        if let Some(session) = &request.session {
            check_session(session)?;
        }
        match self.plan_ready_call(actor, request, *consumed).await {
            Ok((mut plan, reason)) => {
                plan.caller = caller;
                self.run_call(actor, plan, reason).await
            }
            // Boxed, as its state is large and few calls take this path.
            Err(request) => Box::pin(self.admit_call(actor, request, caller, consumed)).await,
        }
    }

    /// Admits a call step by step: rate limits, tool, policy, arguments, approval. Starts it, or records why not.
    async fn admit_call(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        caller: CallerChannel,
        consumed: &mut ConsumedLimits,
    ) -> Result<SubmittedCall> {
        if !consumed.agent {
            // Before any lookup: an unknown tool consumes the limit as well.
            self.consume_rate_limit(actor, || {
                request.tool.add_to_entry(self.context.entry(actor, "call.rate_limited"))
            })
            .await?;
            consumed.agent = true;
        }
        self.check_running_calls(actor)?;
        let mut plan = self.plan(actor, request).await?;
        plan.caller = caller;
        let (reason, needs_approval) = match plan.decision {
            PolicyDecision::Deny(reason) => {
                return self
                    .record_rejection(actor, plan, CallStatus::Denied, reason.code(), reason.text())
                    .await
                    .map(SubmittedCall::recorded);
            }
            PolicyDecision::RequireApproval(reason) => (reason, true),
            PolicyDecision::Allow(reason) => (reason, false),
        };
        if let Err(faults) = self.check_arguments(&plan.target, &plan.arguments) {
            return self
                .record_rejection(actor, plan, CallStatus::Error, "invalid_arguments", &faults)
                .await
                .map(SubmittedCall::recorded);
        }
        if !consumed.server {
            let limited = || {
                self.context.tool_entry(actor, "call.rate_limited", &plan.target.server, &plan.target.tool)
            };
            self.consume_server_rate_limit(actor, &plan.target.server, limited).await?;
            consumed.server = true;
        }
        if needs_approval {
            if let Some(view) = self.attach(actor, &plan).await? {
                return Ok(SubmittedCall::recorded(view));
            }
            plan.caller.report(CallEvent::Status(CallStatus::Pending));
            if let Err(error) = self.request_approval(actor, &plan, reason).await {
                self.pending_callers.remove(actor.tenant(), plan.id);
                // An equal request of the same client may have been stored at this moment.
                let attached = if error.kind() == error::ErrorKind::Conflict {
                    self.attach(actor, &plan).await?
                } else {
                    None
                };
                return attached.map(SubmittedCall::recorded).ok_or(error);
            }
            return self.call(actor, plan.id).await.map(SubmittedCall::recorded);
        }
        self.run_call(actor, plan, reason).await
    }

    /// Starts a call that is allowed.
    async fn run_call(
        self: &Arc<Self>,
        actor: Actor,
        plan: Box<PlannedCall>,
        reason: PolicyReason,
    ) -> Result<SubmittedCall> {
        let (id, caller) = (plan.id, plan.caller.clone());
        // An equal request may still wait for an approval, although this one needs none any more.
        let may_wait = reason != PolicyReason::OwnCall && caller.options.client.is_some();
        let digest = may_wait.then(|| plan.binding(actor).to_string());
        let basis = || CallBasis::Policy { reason, unless_waiting: digest.clone() };
        let failed = match self.start_call(actor, plan, basis()).await {
            Ok(call) => return Ok(SubmittedCall::Running(id, call)),
            Err(failed) => failed,
        };
        let (Some(digest), Some(plan)) =
            (&digest, failed.plan.filter(|_| failed.error.code() == "name_taken"))
        else {
            return Err(failed.error);
        };
        if let Some(view) = Box::pin(self.attach_to(actor, digest, &caller)).await? {
            return Ok(SubmittedCall::recorded(view));
        }
        // The waiting request has just ended.
        let started = Box::pin(self.start_call(actor, plan, basis())).await;
        started.map(|call| SubmittedCall::Running(id, call)).map_err(|failed| failed.error)
    }

    /// Starts a call, which finishes even if the returned future is dropped. Returns after the start is recorded.
    pub(in crate::hub) async fn start_call(
        self: &Arc<Self>,
        actor: Actor,
        plan: Box<PlannedCall>,
        basis: CallBasis,
    ) -> Result<StartedCall, FailedStart> {
        let (started, mut start_receiver) = oneshot::channel();
        let span = tracing::trace_span!(
            target: telemetry::TARGET,
            "call",
            otel.name = %format_args!("tools/call {}", plan.target.tool.name),
            otel.kind = "client",
            otel.status_code = Empty,
            linchpin.server = plan.target.server.slug.as_str(),
            linchpin.tool = plan.target.tool.name.as_str(),
            linchpin.call.id = %plan.id,
            linchpin.status = Empty,
        );
        let call = self.clone().execute(actor, plan, CallStart { basis, started });
        let mut call = self.context.tasks.attend(call.instrument(span));
        poll_fn(|cx| {
            call.advance(cx);
            // Only the call sends to the channel, so that no waker is needed.
            match start_receiver.try_recv() {
                Ok(recorded) => Poll::Ready(recorded),
                Err(TryRecvError::Closed) => {
                    Poll::Ready(Err(FailedStart { error: Error::shutting_down(), plan: None }))
                }
                Err(TryRecvError::Empty) => Poll::Pending,
            }
        })
        .await?;
        Ok(call)
    }

    /// Validates arguments against their size limit and the input schema of the tool.
    pub(in crate::hub) fn check_arguments(
        &self,
        target: &CallTarget,
        arguments: &CallArguments,
    ) -> Result<(), String> {
        let size = arguments.text().get().len();
        if size > MAX_ARGUMENT_BYTES {
            return Err(format!("the arguments have {size} bytes; the limit is {MAX_ARGUMENT_BYTES} bytes"));
        }
        target.input_schema(&self.schema_cache).check(arguments.value())
    }

    /// Enforces the limit of running calls per subject.
    pub(super) fn check_running_calls(&self, actor: Actor) -> Result<()> {
        let running = lock(&self.running);
        let own_calls = running
            .iter()
            .filter(|((tenant, _), running)| *tenant == actor.tenant() && running.subject == actor.subject());
        if own_calls.count() < MAX_RUNNING_CALLS {
            return Ok(());
        }
        Err(concurrency_limited(MAX_RUNNING_CALLS))
    }

    /// Ends a call with a rejection and records it. The first rejection of its kind (subject, tool, reason and text) is
    /// stored without the arguments; repetitions within a minute are counted and refer to its record.
    async fn record_rejection(
        self: &Arc<Self>,
        actor: Actor,
        plan: Box<PlannedCall>,
        status: CallStatus,
        code: &'static str,
        text: &str,
    ) -> Result<CallView> {
        let (tenant, now) = (actor.tenant(), self.context.platform.now());
        let text: String = text.chars().take(MAX_REASON_LEN).collect();
        self.metrics.record_call(tenant, plan.target.server.slug.as_str(), status, SignedDuration::ZERO);
        let kind = self
            .context
            .tool_entry(actor, "call.rejected", &plan.target.server, &plan.target.tool)
            .with("reason", code);
        let kind = AuditRejection::new(tenant, kind, Some(plan.id)).with_error(&text);
        let (kind, count) = self.audit.count_repetition(kind, now);
        let view = CallView {
            id: kind.call.unwrap_or(plan.id),
            error: Some(text.clone()),
            completed: Some(now),
            ..CallView::without_outcome(actor, &plan, status)
        };
        if let Some(count) = count {
            // The repetitions refer to this record: it is stored even if the client disconnects.
            let calls = self.clone();
            let stored = async move {
                calls.store_rejected_call(actor, &plan, (status, text), &kind, (now, count)).await
            };
            self.context.detached(stored).await?;
        }
        Ok(view)
    }

    async fn store_rejected_call(
        &self,
        actor: Actor,
        plan: &PlannedCall,
        (status, text): (CallStatus, String),
        kind: &AuditRejection,
        (now, count): (Timestamp, u64),
    ) -> Result<()> {
        let (mut entry, mut batch) = (kind.entry(now, count), Batch::new());
        if kind.call.is_some() {
            entry = plan.add_to_entry(entry);
            let stores_history = plan.target.server.settings.keep_history;
            let error =
                self.sealed_error(actor.tenant(), plan.id, status, stores_history.then_some(text)).await;
            let call = CallRecord { error, completed: Some(now), ..plan.to_record(actor, status, None, now) };
            batch =
                batch.change(StoreChange::InsertCall(Box::new(call))).with_event(plan.status_event(status));
            batch.changes.extend(self.version_preconditions(plan));
        }
        self.audit.commit_rejection(kind, (now, count), batch.audit(entry)).await
    }

    /// Stores a call and a request for its approval by a user.
    async fn request_approval(&self, actor: Actor, plan: &PlannedCall, reason: PolicyReason) -> Result<()> {
        let now = self.context.platform.now();
        let approval_expires =
            now.saturating_add(self.context.options.approval_lifetime).unwrap_or(Timestamp::MAX);
        let call = self.call_record(actor, plan, CallStatus::Pending).await?;
        let approval = Approval {
            id: ApprovalId::new(&*self.context.platform),
            call: plan.id,
            digest: plan.binding(actor),
            decision: ApprovalStatus::Open,
            decided_by: None,
            created: now,
            expires: approval_expires,
            decided: None,
        };
        let waiting_request = self.waiting_request_change(plan, &approval)?;
        let entry = self.call_entry(actor, "approval.requested", plan).with("reason", reason.code());
        let entry =
            entry.with("approval", approval.id.to_string()).with("binding", approval.digest.to_string());
        let mut batch = Batch::new().audit(entry).with_event(plan.status_event(CallStatus::Pending));
        batch = batch.with_event(event_payloads::approval(approval.id, plan.id, ApprovalStatus::Open));
        let scope = CountedCalls::Pending(actor.subject().to_string());
        batch = batch.change(StoreChange::RequireConcurrency { scope, max_calls: MAX_PENDING_APPROVALS });
        batch = batch
            .change(StoreChange::InsertCall(Box::new(call)))
            .change(StoreChange::InsertApproval(approval));
        batch.changes.extend(self.version_preconditions(plan));
        batch.changes.extend(waiting_request);
        // Before the commit: the approval may be used as soon as it is stored.
        self.pending_callers.insert(actor.tenant(), plan, now, approval_expires);
        self.context.store.commit(actor.tenant(), batch).await
    }

    /// Creates the call record with its encrypted arguments.
    pub(in crate::hub) async fn call_record(
        &self,
        actor: Actor,
        plan: &PlannedCall,
        status: CallStatus,
    ) -> Result<CallRecord> {
        let now = self.context.platform.now();
        // A pending call needs its arguments when it is approved, even if the server stores no history.
        let arguments = if plan.target.server.settings.keep_history || status == CallStatus::Pending {
            Some(self.seal_arguments(actor.tenant(), plan).await?)
        } else {
            None
        };
        Ok(plan.to_record(actor, status, arguments, now))
    }

    /// Creates the audit entry of a call.
    pub(in crate::hub) fn call_entry(
        &self,
        actor: Actor,
        action: &'static str,
        plan: &PlannedCall,
    ) -> AuditEntry {
        plan.add_to_entry(self.context.tool_entry(actor, action, &plan.target.server, &plan.target.tool))
    }
}

/// Waits for the outcome of a started call.
pub(super) async fn outcome_of(id: CallId, call: StartedCall) -> Result<CallView> {
    call.await.flatten().map(|view| *view).ok_or_else(|| unknown_outcome_error(id))
}

/// Creates the error for a call whose outcome is unknown.
pub(super) fn unknown_outcome_error(call: CallId) -> Error {
    let text = format!("the hub stopped while call {call} was running: its outcome is unknown");
    Error::new(error::ErrorKind::Unavailable, "outcome_unknown", text)
}
