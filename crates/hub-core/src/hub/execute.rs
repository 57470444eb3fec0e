//! Call execution: records the intent, sends the call once and records the outcome. If the hub is killed in between,
//! the call is recorded as `unknown` at the next start and is never sent twice.

use std::collections::hash_map;
use std::sync::Arc;

use jiff::Timestamp;
use linchpin::encode::to_value;
use linchpin::model::{CallToolResult, TaskStatus};
use linchpin::{CallError, ClientError, Revision};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::Hub;
use super::admit::Plan;
use super::call_records::CallView;
use super::event_payloads;
use crate::actor::{Scope, Subject};
use crate::audit::Entry;
use crate::bounded_result::Envelope;
use crate::digest::Digest;
use crate::error::{self, Result};
use crate::events::Told;
use crate::id::{ApprovalId, CallId, TenantId};
use crate::lock::lock;
use crate::store::{Batch, Call, Change, Decision, Outcome, Status};
use crate::text::first_line;
use crate::tool::pin::visible;

/// Start of an admitted call.
pub(super) struct Intent {
    /// Approval of a pending call.
    pub(super) approved: Option<Approved>,
    /// Reason code of the decision that allows the call.
    pub(super) reason: &'static str,
    /// Receives the result of recording the intent.
    pub(super) begun: oneshot::Sender<Result<()>>,
    /// Receives the outcome.
    pub(super) done: oneshot::Sender<CallView>,
}

/// Approval by a user. It is stored and consumed in the commit that starts the call.
pub(super) struct Approved {
    pub(super) id: ApprovalId,
    pub(super) changes: Vec<Change>,
    pub(super) entry: Entry,
}

/// Running call and its stop signal.
pub(super) struct Running {
    pub(super) subject: Subject,
    pub(super) stop: Arc<Notify>,
    /// Number of attempts to start it: of several concurrent approvals, all but one fail.
    tries: usize,
}

/// Outcome of a call before it is stored.
struct Came {
    status: Status,
    result: Option<Value>,
    warning: Option<String>,
    error: Option<String>,
}

impl Came {
    fn failed(status: Status, error: impl Into<String>) -> Self {
        Came { status, result: None, warning: None, error: Some(error.into()) }
    }
}

/// Guard of a running call. If it is dropped before the outcome is stored, the call is recorded as `unknown`.
struct Begun {
    hub: Arc<Hub>,
    tenant: TenantId,
    id: CallId,
    /// Event that is published in this case.
    unknown: Told,
    is_open: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let hash_map::Entry::Occupied(mut running) = lock(&self.hub.running).entry((self.tenant, self.id))
        {
            running.get_mut().tries -= 1;
            if running.get().tries == 0 {
                running.remove();
            }
        }
        if self.is_open {
            let at = self.hub.world.now();
            let outcome =
                Outcome { status: Status::Unknown, result: None, error: None, at, keeps_arguments: true };
            let entry = Entry::new(at, "hub", "call.done").with("call", self.id.to_string());
            let entry = entry.with("status", Status::Unknown.name());
            let finish = Change::Finish { call: self.id, outcome };
            let batch = Batch::new().change(finish).audit(entry).tell(self.unknown.clone());
            self.hub.late.add(self.tenant, batch);
        }
    }
}

impl Hub {
    /// Registers a running call. Returns its stop signal.
    fn register_call(&self, scope: Scope, id: CallId) -> Arc<Notify> {
        let mut running = lock(&self.running);
        let new = || Running { subject: scope.subject(), stop: Arc::default(), tries: 0 };
        let running = running.entry((scope.tenant(), id)).or_insert_with(new);
        running.tries += 1;
        running.stop.clone()
    }

    /// Executes a call. The intent is recorded first; if that fails, nothing is sent.
    pub(super) async fn carry_out(self: Arc<Self>, scope: Scope, plan: Plan, intent: Intent) {
        let (tenant, stop) = (scope.tenant(), self.register_call(scope, plan.id));
        let unknown = plan.told(Status::Unknown);
        let mut open = Begun { hub: self.clone(), tenant, id: plan.id, unknown, is_open: false };
        let Intent { approved, reason, begun, done } = intent;
        let approval = approved.as_ref().map(|approved| approved.id);
        // Look the name up before the call is sent: no read of the store may delay the commit of the outcome.
        let subject_name = self.caller_name(scope).await;
        let started = self.world.now();
        let has_begun = self.begin(scope, &plan, approved, reason, started).await;
        open.is_open = has_begun.is_ok();
        if has_begun.as_ref().is_err_and(|error| error.kind() == error::Kind::Unavailable) {
            self.late.doubt(tenant, plan.id, started); // the intent may have been stored
        }
        let _ = begun.send(has_begun); // the caller may be gone
        if !open.is_open {
            return;
        }
        let came = tokio::select! {
            biased;
            came = self.reach(scope, &plan) => came,
            () = stop.notified() => Came::failed(Status::Cancelled, "cancelled while it was running"),
        };
        let (completed, span) = (self.world.now(), tracing::Span::current());
        if came.status != Status::Success {
            span.record("otel.status_code", "ERROR");
        }
        span.record("linchpin.status", came.status.name());
        let view = CallView {
            subject_name,
            result: came.result.clone(),
            warning: came.warning.clone(),
            error: came.error.clone(),
            approval,
            started: Some(started),
            completed: Some(completed),
            ..CallView::of(scope, &plan, came.status)
        };
        let view = view.summarised();
        self.keep(scope, &plan, came, (started, completed), &view).await;
        open.is_open = false;
        let _ = done.send(view);
    }

    /// Records the intent: the start of the call, and the use of its approval.
    async fn begin(
        &self,
        scope: Scope,
        plan: &Plan,
        approved: Option<Approved>,
        reason: &'static str,
        at: Timestamp,
    ) -> Result<()> {
        let mut entry = self.about(scope, "call.intent", plan).with("reason", reason);
        let mut batch = Batch::new().tell(plan.told(Status::Running));
        batch.changes = self.room(scope, &plan.server).await?;
        batch.changes.extend(self.rules(plan));
        if let Some(Approved { id, changes, entry: said }) = approved {
            let digest = plan.binding(scope);
            entry = entry.with("approval", id.to_string());
            batch.changes.extend(changes);
            batch = batch.change(Change::Use { approval: id, digest, at }).audit(said);
            batch = batch.tell(event_payloads::approval(id, plan.id, Decision::Used));
            batch = batch.change(Change::Start { call: plan.id, at });
        } else {
            let call = Call { started: Some(at), ..self.record(scope, plan, Status::Running).await? };
            batch = batch.change(Change::Open(Box::new(call)));
        }
        let begun = self.store.commit(scope.tenant(), batch.audit(entry)).await;
        if begun.as_ref().is_err_and(|error| error.kind() == error::Kind::Exhausted) {
            let limited = self.about_tool(scope, "call.limited", &plan.server, &plan.tool);
            self.audit_refusal(scope.tenant(), limited).await;
        }
        begun
    }

    /// Sends the call, once, with the credentials of the subject.
    async fn reach(&self, scope: Scope, plan: &Plan) -> Came {
        let hidden = match self.secrets_of(scope, &plan.server).await {
            Ok(hidden) => hidden,
            Err(error) => return Came::failed(Status::Error, error.message()),
        };
        let mut sent = self.send(scope, plan).await;
        if let Ok(Some(Err(ClientError::Call(CallError::Closed(_))))) = sent {
            sent = self.send(scope, plan).await; // the connection had closed before: nothing was sent
        }
        let mut came = match sent {
            Err(error) => Came::failed(Status::Error, hidden.hide_in(error.message().to_owned())),
            Ok(None) => {
                let time = plan.server.settings.timeout;
                Came::failed(Status::Unknown, format!("no response within {time:?}: the outcome is unknown"))
            }
            Ok(Some(Ok(result))) => {
                let result = hidden.hide(to_value(&result, Revision::LATEST));
                let Envelope { result, is_error, warning, summary } =
                    Envelope::new(result, self.options.result_limit);
                let status = if is_error { Status::Error } else { Status::Success };
                let error = is_error.then(|| first_line(&summary));
                Came { status, result: Some(result), warning, error }
            }
            Ok(Some(Err(error))) => {
                let status = if may_have_run(&error) { Status::Unknown } else { Status::Error };
                Came::failed(status, visible(&hidden.hide_in(error.to_string())))
            }
        };
        if plan.asked.is_some() {
            let edited = "a user edited the arguments before the call was sent";
            came.warning =
                Some(came.warning.map_or_else(|| edited.to_owned(), |other| format!("{edited}; {other}")));
        }
        came
    }

    /// Returns the result, or `None` after the timeout, which includes tasks and server requests.
    async fn send(&self, scope: Scope, plan: &Plan) -> Result<Option<Result<CallToolResult, ClientError>>> {
        let (client, time) = (self.client(scope, &plan.server).await?, plan.server.settings.timeout);
        // The timeout below is the only one that applies: each single request has twice as long.
        let mut call = client.call(plan.tool.name.as_str(), &plan.arguments).timeout(2 * time);
        if plan.tool.requires_task() {
            // The server must retain the task for longer than the hub waits. Dropping the future cancels the task.
            call = call.as_task(2 * time);
        }
        let answer = tokio::time::timeout(time, call.into_future()).await.ok();
        if let Some(Err(error)) = &answer {
            self.failed_request(&client, error).await;
        }
        Ok(answer)
    }

    /// Records the outcome of a call. If it cannot be stored now, the commit is deferred.
    async fn keep(
        &self,
        scope: Scope,
        plan: &Plan,
        came: Came,
        (started, at): (Timestamp, Timestamp),
        view: &CallView,
    ) {
        let (tenant, keeps) = (scope.tenant(), plan.server.settings.keep_history);
        let Came { status, result, warning, error } = came;
        let mut entry =
            self.entry(scope, "call.done").with("call", plan.id.to_string()).with("status", status.name());
        let mut sealed = None;
        if let Some(result) = result {
            entry = entry.with("result", Digest::of("linchpin result").json(&result).end().to_string());
            if keeps {
                let kept = json!({ "result": result, "warning": warning });
                match self.seal(tenant, plan.id, "result", &kept).await {
                    Ok(bytes) => sealed = Some(bytes),
                    Err(error) => {
                        tracing::error!(call.id = %plan.id, %error, "failed to encrypt the result of a call");
                    }
                }
            }
        }
        let error = self.sealed_error(tenant, plan.id, status, error.filter(|_| keeps)).await;
        let outcome = Outcome { status, result: sealed, error, at, keeps_arguments: keeps };
        let batch = Batch::new().change(Change::Finish { call: plan.id, outcome }).audit(entry);
        let mut batch = batch.tell(plan.told(status));
        if !keeps {
            self.passing.keep(tenant, view); // for callers that are waiting now
        }
        self.meters.call_over(tenant, plan.server.slug.as_str(), status, at.duration_since(started));
        match self.store.commit(tenant, batch.clone()).await {
            Ok(()) => {}
            Err(error) if error.kind() == error::Kind::Conflict => {
                // Another hub considered this one dead and recorded the call as `unknown`. The audit still gets the
                // real outcome.
                tracing::warn!(call.id = %plan.id, status = status.name(), "call finished after it was recorded as unknown");
                let entries = batch.audit.into_iter().map(|entry| entry.with("too_late", true)).collect();
                self.late.add(tenant, Batch { audit: entries, ..Batch::new() });
            }
            Err(error) => {
                tracing::error!(call.id = %plan.id, %error, "failed to store call outcome; queued for retry");
                self.passing.keep(tenant, view);
                if self.store.shared().is_none() {
                    // A single hub publishes the outcome now. In a cluster, the event follows when the other hubs can
                    // read it.
                    for told in std::mem::take(&mut batch.told) {
                        self.events.publish(tenant, told);
                    }
                }
                self.late.add(tenant, batch);
            }
        }
    }

    /// Records calls that were running when a hub stopped, this one or a peer, as `unknown`. Returns their number.
    pub async fn recover(&self) -> Result<usize> {
        let mut count = 0;
        for tenant in self.store.tenants().await? {
            count += self.recover_calls(tenant).await?;
        }
        Ok(count)
    }

    pub(super) async fn recover_calls(&self, tenant: TenantId) -> Result<usize> {
        let mut count = 0;
        loop {
            let calls = self.store.abandoned(tenant).await?;
            if calls.is_empty() {
                return Ok(count);
            }
            for call in calls {
                let text = "the hub stopped while the call was running: its outcome is unknown";
                let outcome = self.failed(tenant, call.id, call.server, Status::Unknown, text).await;
                let entry = Entry::new(outcome.at, "hub", "call.done").with("call", call.id.to_string());
                let batch = Batch::new().change(Change::Finish { call: call.id, outcome });
                let batch = batch.audit(entry.with("status", Status::Unknown.name()));
                let batch =
                    batch.tell(event_payloads::call(call.id, call.server, &call.tool, Status::Unknown));
                match self.store.commit(tenant, batch).await {
                    Err(error) if error.kind() == error::Kind::Conflict => continue, // another hub recorded it
                    done => done?,
                }
                count += 1;
            }
        }
    }
}

/// Reports whether the tool may have run although the call failed: always, unless it is certain that nothing was sent
/// or that the server responded with an error. An error that is not listed here says nothing about the tool.
#[expect(clippy::match_same_arms, reason = "every error is named; an unnamed one means unknown")]
fn may_have_run(error: &ClientError) -> bool {
    match error {
        ClientError::Open { .. }
        | ClientError::NotServed { .. }
        | ClientError::BadArguments(_)
        | ClientError::UnsupportedVersion { .. } => false,
        ClientError::Call(error) => match error {
            CallError::Rejected(_) | CallError::Closed(_) | CallError::TooMany(_) => false,
            CallError::Transport { status: Some(400..500), .. } => false,
            CallError::Transport { code, .. } => !NOT_SENT.contains(code),
            CallError::TimedOut(_) | CallError::Lost(_) | CallError::Malformed(_) => true,
        },
        ClientError::Task { status, .. } => !matches!(status, TaskStatus::Failed | TaskStatus::Cancelled),
        // The server has sent a result or a server request: the tool had started.
        ClientError::OutcomeUnknown { .. }
        | ClientError::Malformed { .. }
        | ClientError::EndlessList { .. }
        | ClientError::BadSkill { .. }
        | ClientError::NotOffered { .. }
        | ClientError::Question { .. }
        | ClientError::TooManyRounds(_)
        | ClientError::UnexpectedResult { .. }
        | ClientError::BadResult { .. } => true,
        _ => true,
    }
}

/// Error codes of the SDK for failures in which nothing was sent.
const NOT_SENT: [&str; 6] = [
    "HTTP_CONNECT",
    "HTTP_REQUEST",
    "HTTP_REDIRECT",
    "HTTP_AUTHORIZATION",
    "HTTP_SIGN_IN",
    "HTTP_HEADERS_PROVIDER",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_after_which_the_tool_may_have_run_is_unknown() {
        let text = || "x".to_owned();
        let transport = |code, status| CallError::Transport { code, status, message: "x".into() };
        let task = |status| ClientError::Task { id: text(), status, message: None };
        for error in [
            ClientError::OutcomeUnknown { tool: text(), reason: text() },
            ClientError::NotOffered { method: text() },
            ClientError::Question { method: text(), reason: text() },
            ClientError::TooManyRounds(8),
            ClientError::UnexpectedResult { method: text(), kind: text() },
            ClientError::BadResult { tool: text(), fault: text() },
            ClientError::Call(CallError::Malformed(text())),
            ClientError::Call(CallError::Lost("x".into())),
            ClientError::Call(CallError::TimedOut(std::time::Duration::ZERO)),
            ClientError::Call(transport("HTTP_STATUS", Some(500))),
            ClientError::Call(transport("HTTP_BODY", None)),
            task(TaskStatus::Working),
            task(TaskStatus::InputRequired),
            task(TaskStatus::Completed),
        ] {
            assert!(may_have_run(&error), "{error:?}");
        }
        for error in [
            ClientError::Open { server: text(), source: std::io::ErrorKind::NotFound.into() },
            ClientError::NotServed { method: "tools/call" },
            ClientError::BadArguments(text()),
            ClientError::UnsupportedVersion { offered: Vec::new(), spoken: Vec::new() },
            ClientError::Call(CallError::Closed("x".into())),
            ClientError::Call(CallError::TooMany(1)),
            ClientError::Call(transport("HTTP_STATUS", Some(403))),
            ClientError::Call(transport("HTTP_CONNECT", None)),
            task(TaskStatus::Failed),
            task(TaskStatus::Cancelled),
        ] {
            assert!(!may_have_run(&error), "{error:?}");
        }
    }
}
