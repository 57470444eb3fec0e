//! Call execution: records the intent, sends the call once and records the outcome. If the hub is killed in between,
//! the call is recorded as `unknown` at the next start and is never sent twice.

use std::collections::hash_map;
use std::sync::Arc;

use jiff::Timestamp;
use linchpin::encode::to_value;
use linchpin::model::CallToolResult;
use linchpin::{CallError, ClientError, ErrorObject, Revision};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tracing::Span;

use super::arguments::CallArguments;
use super::call_error::may_have_run;
use super::call_start::{ApprovalUse, CallBasis, CallStart, FailedStart};
use super::exchange::CallExchange;
use super::handle::CallEvent;
use super::plan::PlannedCall;
use super::records::CallView;
use super::target::CallTarget;
use crate::actor::{Actor, Subject};
use crate::audit::AuditEntry;
use crate::bounded_result::BoundedResult;
use crate::digest::Digest;
use crate::error::{self, Result};
use crate::hub::calls::Calls;
use crate::hub::calls::limits::concurrency_limits;
use crate::hub::event_payloads;
use crate::hub::upstream::connect::rejection;
use crate::id::{CallId, TenantId};
use crate::lock::lock;
use crate::store::{ApprovalStatus, Batch, CallOutcome, CallRecord, CallStatus, DocumentKind, StoreChange};
use crate::text::escape_invisible;
use crate::text::first_line;
use crate::trace_context::TraceContext;

/// Running call of this hub, and the signal that stops it.
pub(in crate::hub) struct RunningCall {
    pub(in crate::hub) subject: Subject,
    pub(in crate::hub) stop: Arc<Notify>,
    /// Number of attempts to start the call: of several concurrent approvals, all but one fail.
    attempts: usize,
}

/// Outcome of a tool call before it is stored: status, result or error, and warning.
struct ExecutionOutcome {
    status: CallStatus,
    result: Option<BoundedResult>,
    warning: Option<String>,
    error: Option<String>,
    /// JSON-RPC error with which the server rejected the call.
    rejection: Option<ErrorObject>,
}

impl ExecutionOutcome {
    fn without_result(status: CallStatus, error: impl Into<String>) -> Self {
        ExecutionOutcome { status, result: None, warning: None, error: Some(error.into()), rejection: None }
    }
}

/// Result of a call in the form that is encrypted for its record.
#[derive(Serialize)]
struct ResultRecord<'a> {
    result: &'a RawValue,
    warning: Option<&'a str>,
}

/// Guard that records the outcome of a running call as `unknown` if it is dropped before an outcome is stored.
struct RunningCallGuard {
    calls: Arc<Calls>,
    tenant: TenantId,
    id: CallId,
    target: Arc<CallTarget>,
    is_started: bool,
}

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        if let hash_map::Entry::Occupied(mut running) =
            lock(&self.calls.running).entry((self.tenant, self.id))
        {
            running.get_mut().attempts -= 1;
            if running.get().attempts == 0 {
                running.remove();
            }
        }
        if self.is_started {
            let at = self.calls.context.platform.now();
            let outcome = CallOutcome {
                status: CallStatus::Unknown,
                result: None,
                error: None,
                at,
                retains_arguments: self.target.server.settings.keep_history,
            };
            let entry = AuditEntry::new(at, "hub", "call.finished").with("call", self.id.to_string());
            let entry = entry.with("status", CallStatus::Unknown.name());
            let finish = StoreChange::FinishCall { call: self.id, outcome };
            let event = self.target.status_event(self.id, CallStatus::Unknown);
            let batch = Batch::new().change(finish).audit(entry).with_event(event);
            self.calls.deferred_commits.add(self.tenant, batch);
        }
    }
}

impl Calls {
    /// Registers a running call, so that it can be cancelled. Returns its stop signal.
    fn register_call(&self, actor: Actor, id: CallId) -> Arc<Notify> {
        let mut running = lock(&self.running);
        let new = || RunningCall { subject: actor.subject(), stop: Arc::default(), attempts: 0 };
        let running = running.entry((actor.tenant(), id)).or_insert_with(new);
        running.attempts += 1;
        running.stop.clone()
    }

    /// Executes a planned tool call at its server. The intent is recorded first; if that fails, nothing is sent, and the
    /// call has no outcome.
    pub(in crate::hub) async fn execute(
        self: Arc<Self>,
        actor: Actor,
        plan: Box<PlannedCall>,
        intent: CallStart,
    ) -> Option<Box<CallView>> {
        let (tenant, stop) = (actor.tenant(), self.register_call(actor, plan.id));
        let mut open = RunningCallGuard {
            calls: self.clone(),
            tenant,
            id: plan.id,
            target: plan.target.clone(),
            is_started: false,
        };
        let CallStart { basis, started: started_sender } = intent;
        let approval = match &basis {
            CallBasis::Approval(approved) => Some(approved.id),
            CallBasis::Policy { .. } => None,
        };
        // Look the name up before the call is sent: no read of the store may delay the commit of the outcome.
        let subject_name = self.identity.caller_name(actor).await;
        let started = self.context.platform.now();
        let intent_result = self.record_intent(actor, &plan, basis, started).await;
        open.is_started = intent_result.is_ok();
        if intent_result.as_ref().is_err_and(|error| error.kind() == error::ErrorKind::Unavailable) {
            self.deferred_commits.add_uncertain_start(tenant, plan.id, started); // the intent may have been stored
        }
        // The caller may be gone.
        if let Err(error) = intent_result {
            let _ = started_sender.send(Err(FailedStart { error, plan: Some(plan) }));
            return None;
        }
        let _ = started_sender.send(Ok(()));
        if approval.is_some() {
            self.pending_callers.remove(tenant, plan.id);
        }
        plan.caller.report(CallEvent::Status(CallStatus::Running));
        let outcome_data = tokio::select! {
            biased;
            outcome_data = self.send_call(actor, &plan) => outcome_data,
            () = stop.notified() => ExecutionOutcome::without_result(CallStatus::Cancelled, "the call was cancelled while it was running"),
        };
        let (completed, span) = (self.context.platform.now(), Span::current());
        if outcome_data.status != CallStatus::Success {
            span.record("otel.status_code", "ERROR");
        }
        span.record("linchpin.status", outcome_data.status.name());
        let batch = self.outcome_batch(actor, &plan, &outcome_data, completed).await;
        let ExecutionOutcome { status, result, warning, error, rejection } = outcome_data;
        let (result, summary) = result.map(|result| (result.value, result.text)).unzip();
        let view = CallView {
            subject_name,
            result,
            summary,
            warning,
            error,
            rejection: rejection.map(Box::new),
            approval,
            started: Some(started),
            completed: Some(completed),
            ..CallView::without_outcome(actor, &plan, status)
        };
        let PlannedCall { target, arguments, requested_arguments, .. } = *plan;
        let view = Box::new(CallView {
            arguments: Some(arguments.into_value()),
            requested_arguments: requested_arguments.map(CallArguments::into_value),
            ..view
        });
        self.metrics.record_call(
            tenant,
            target.server.slug.as_str(),
            status,
            completed.duration_since(started),
        );
        self.record_outcome(tenant, &target, batch, &view).await;
        open.is_started = false;
        Some(view)
    }

    /// Records the intent: the start of the call, and the use of its approval.
    async fn record_intent(
        &self,
        actor: Actor,
        plan: &PlannedCall,
        basis: CallBasis,
        at: Timestamp,
    ) -> Result<()> {
        let mut entry = self.call_entry(actor, "call.intent", plan).with("reason", basis.reason());
        let mut batch = Batch::new().with_event(plan.status_event(CallStatus::Running));
        if let CallBasis::Policy { unless_waiting: Some(name), .. } = &basis {
            // First: the waiting call, which this request continues, may use up the limits.
            let (kind, name) = (DocumentKind::WaitingRequest, name.clone());
            batch = batch.change(StoreChange::RequireUnusedName { kind, name });
        }
        batch.changes.extend(plan.rates.iter().map(|rate| rate.consume(at)));
        batch.changes.extend(concurrency_limits(actor, plan));
        batch.changes.extend(self.version_preconditions(plan));
        if let Some(rule) = plan.rule {
            entry = entry.with("rule", rule.to_string());
        }
        match basis {
            CallBasis::Approval(ApprovalUse { id, batch: Batch { changes, audit, events, .. } }) => {
                let digest = plan.binding(actor);
                entry = entry.with("approval", id.to_string());
                batch.changes.extend(changes);
                batch.audit.extend(audit);
                batch.events.extend(events);
                batch = batch.change(StoreChange::ConsumeApproval { approval: id, digest, at });
                batch = batch.with_event(event_payloads::approval(id, plan.id, ApprovalStatus::Used));
                batch = batch.change(StoreChange::StartCall { call: plan.id, at });
            }
            CallBasis::Policy { .. } => {
                let call = self.call_record(actor, plan, CallStatus::Running).await?;
                let call = CallRecord { started: Some(at), ..call };
                batch = batch.change(StoreChange::InsertCall(Box::new(call)));
            }
        }
        let Err(error) = self.context.store.commit(actor.tenant(), batch.audit(entry)).await else {
            return Ok(());
        };
        if error.kind() == error::ErrorKind::LimitExceeded {
            let limited =
                self.context.tool_entry(actor, "call.rate_limited", &plan.target.server, &plan.target.tool);
            self.audit.audit_rejection(actor.tenant(), limited).await;
        }
        Err(plan.rates.iter().find_map(|rate| rate.explain(&error)).unwrap_or(error))
    }

    /// Sends the call to the server with the credential of the caller, or of the agent that a user has chosen. It is sent
    /// again only if the connection had closed before anything was sent.
    async fn send_call(self: &Arc<Self>, actor: Actor, plan: &PlannedCall) -> ExecutionOutcome {
        let access =
            match self.upstream.upstream_access(plan.upstream_actor(actor), &plan.target.server).await {
                Ok(access) => access,
                Err(error) => return ExecutionOutcome::without_result(CallStatus::Error, error.message()),
            };
        let max = plan.target.server.settings.limits.max_call(plan.target.server.settings.timeout);
        let expires = self.context.platform.now().saturating_add(max).unwrap_or(Timestamp::MAX);
        let exchange = CallExchange::new(self, actor, plan, access.clone(), expires);
        let redactor = &access.redactor;
        let attempts = async {
            let sent = self.send_once(actor, plan, &exchange).await;
            if let Ok(Some(Err(ClientError::Call(CallError::Closed(_))))) = sent {
                // The connection had closed before: nothing was sent.
                return Box::pin(self.send_once(actor, plan, &exchange)).await;
            }
            sent
        };
        let sent = tokio::select! {
            biased;
            sent = attempts => sent,
            never = exchange.publish_progress() => match never {},
        };
        let mut outcome_data = match sent {
            Err(error) => ExecutionOutcome::without_result(
                CallStatus::Error,
                redactor.redact_text(error.message().to_owned()),
            ),
            Ok(None) => timed_out(&CallError::TimedOut(max)),
            Ok(Some(Err(ClientError::Call(error @ CallError::TimedOut(_))))) => timed_out(&error),
            Ok(Some(Ok(result))) => {
                let value = to_value(&result, Revision::LATEST);
                drop(result); // the value and its JSON text are the only copies from here on
                let (value, json) = redactor.redact_with_json(value);
                let mut result = BoundedResult::new(value, json, self.context.limits().result_bytes);
                let status = if result.is_error { CallStatus::Error } else { CallStatus::Success };
                let error = result.is_error.then(|| first_line(&result.text));
                ExecutionOutcome {
                    status,
                    warning: result.warning.take(),
                    result: Some(result),
                    error,
                    rejection: None,
                }
            }
            Ok(Some(Err(error))) => {
                let status = if may_have_run(&error) { CallStatus::Unknown } else { CallStatus::Error };
                let text = escape_invisible(&redactor.redact_text(error.to_string()));
                ExecutionOutcome {
                    rejection: rejection(&error, redactor),
                    ..ExecutionOutcome::without_result(status, text)
                }
            }
        };
        let edited = "a user edited the arguments before the call was sent";
        let edited = plan.requested_arguments.is_some().then(|| edited.to_owned());
        let warnings = [edited, exchange.warning(), outcome_data.warning].into_iter().flatten();
        outcome_data.warning = warnings.reduce(|all, next| format!("{all}; {next}"));
        outcome_data
    }

    /// Returns the trace context that the server receives: the span of the call if spans are exported, else that of the
    /// request.
    fn trace_of(&self, plan: &PlannedCall) -> Option<TraceContext> {
        let span = self.context.options.span_context.and_then(|context_of| context_of(&Span::current()));
        match (plan.trace.clone(), span) {
            (Some(request), Some(span)) => Some(request.continued_by(&span)),
            (request, span) => span.or(request),
        }
    }

    /// Sends a call and returns its result. Progress, tasks and server requests extend the timeout of the server up to
    /// its maximum duration of a call; `None` after that.
    async fn send_once(
        &self,
        actor: Actor,
        plan: &PlannedCall,
        exchange: &Arc<CallExchange>,
    ) -> Result<Option<Result<CallToolResult, ClientError>>> {
        let CallTarget { server, tool, .. } = &*plan.target;
        let actor = plan.upstream_actor(actor);
        let (client, time) = (self.upstream.connection_for(actor, server).await?, server.settings.timeout);
        let max = server.settings.limits.max_call(time);
        let call =
            client.call(tool.name.as_str(), plan.arguments.text()).timeout(time).extend_on_progress(max);
        let mut call = exchange.attach(call);
        if tool.requires_task() {
            // The server must retain the task for longer than the hub waits. Dropping the future cancels the task.
            call = call.as_task(2 * max);
        }
        if let Some(trace) = self.trace_of(plan) {
            call = call.meta(trace.to_meta());
        }
        let response = tokio::time::timeout(max, call.into_future()).await.ok();
        if let Some(Err(error)) = &response {
            self.upstream.failed_request(&client, error).await;
        }
        Ok(response)
    }

    /// Creates the commit of the outcome of a call: its encrypted result or error, its audit entry and its event.
    async fn outcome_batch(
        &self,
        actor: Actor,
        plan: &PlannedCall,
        outcome_data: &ExecutionOutcome,
        at: Timestamp,
    ) -> Batch {
        let (tenant, stores_history) = (actor.tenant(), plan.target.server.settings.keep_history);
        let ExecutionOutcome { status, result, warning, error, rejection: _ } = outcome_data;
        let status = *status;
        let mut entry = self
            .context
            .entry(actor, "call.finished")
            .with("call", plan.id.to_string())
            .with("status", status.name());
        let mut sealed = None;
        if let Some(result) = result {
            entry =
                entry.with("result", Digest::of("linchpin result").json(&result.value).finish().to_string());
            if stores_history {
                let record = ResultRecord { result: &result.json, warning: warning.as_deref() };
                match self.seal(tenant, plan.id, "result", &record).await {
                    Ok(bytes) => sealed = Some(bytes),
                    Err(error) => {
                        tracing::error!(call.id = %plan.id, %error, "failed to encrypt the result of a call");
                    }
                }
            }
        }
        let error = error.clone().filter(|_| stores_history);
        let error = self.sealed_error(tenant, plan.id, status, error).await;
        let outcome = CallOutcome { status, result: sealed, error, at, retains_arguments: stores_history };
        let batch = self.close_server_requests(tenant, plan.id, Batch::new());
        let batch = batch.change(StoreChange::FinishCall { call: plan.id, outcome }).audit(entry);
        batch.with_event(plan.status_event(status))
    }

    /// Stores the outcome of a call and its audit entry. If it cannot be stored now, the commit is deferred.
    async fn record_outcome(&self, tenant: TenantId, target: &CallTarget, mut batch: Batch, view: &CallView) {
        if !target.server.settings.keep_history {
            self.recent_results.insert(tenant, view); // for callers that are waiting now
        }
        match self.context.store.commit(tenant, batch.clone()).await {
            Ok(()) => {}
            Err(error) if error.kind() == error::ErrorKind::Conflict => {
                // Another hub considered this one dead and recorded the call as `unknown`. The audit still gets the
                // real outcome.
                tracing::warn!(call.id = %view.id, status = view.status.name(), "call finished after it was recorded as unknown");
                let entries = batch.audit.into_iter().map(|entry| entry.with("too_late", true)).collect();
                self.deferred_commits.add(tenant, Batch { audit: entries, ..Batch::new() });
            }
            Err(error) => {
                tracing::error!(call.id = %view.id, %error, "failed to store call outcome; queued for retry");
                self.recent_results.insert(tenant, view);
                if self.context.store.shared().is_none() {
                    // A single hub publishes the outcome now. In a cluster, the event follows when the other hubs can
                    // read it.
                    for event in std::mem::take(&mut batch.events) {
                        self.context.events.publish(tenant, event);
                    }
                }
                self.deferred_commits.add(tenant, batch);
            }
        }
    }

    /// Records calls that were running when a hub stopped, this one or a peer, as `unknown`. Returns their number.
    pub async fn recover(&self) -> Result<usize> {
        let mut count = 0;
        for tenant in self.context.store.tenants().await? {
            count += self.recover_calls(tenant).await?;
        }
        Ok(count)
    }

    pub(in crate::hub) async fn recover_calls(&self, tenant: TenantId) -> Result<usize> {
        let mut count = 0;
        loop {
            let calls = self.context.store.abandoned_calls(tenant).await?;
            if calls.is_empty() {
                return Ok(count);
            }
            for call in calls {
                let text = "the hub stopped while the call was running: its outcome is unknown";
                let outcome =
                    self.failed_outcome(tenant, call.id, call.server, CallStatus::Unknown, text).await;
                let entry =
                    AuditEntry::new(outcome.at, "hub", "call.finished").with("call", call.id.to_string());
                let batch = Batch::new().change(StoreChange::FinishCall { call: call.id, outcome });
                let batch = batch.audit(entry.with("status", CallStatus::Unknown.name()));
                let batch = batch.with_event(event_payloads::call(
                    call.id,
                    call.server,
                    &call.tool,
                    CallStatus::Unknown,
                ));
                match self.context.store.commit(tenant, batch).await {
                    Err(error) if error.kind() == error::ErrorKind::Conflict => continue, // another hub recorded it
                    result => result?,
                }
                count += 1;
            }
        }
    }
}

/// Returns the outcome of a call whose server has not responded in time.
fn timed_out(error: &CallError) -> ExecutionOutcome {
    ExecutionOutcome::without_result(
        CallStatus::Unknown,
        format!("{error}: the outcome of the call is unknown"),
    )
}
