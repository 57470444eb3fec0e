//! The end of the road: what is about to be done is kept, then done, and what came of it is kept. A hub that is killed in
//! between finds out at its next start that it does not know what became of the call; it is never made twice.

use std::collections::hash_map;
use std::sync::Arc;

use jiff::Timestamp;
use linchpin::encode::to_value;
use linchpin::model::{CallToolResult, TaskStatus};
use linchpin::{CallError, ClientError, Revision};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::Hub;
use super::executor::Plan;
use super::history::CallView;
use super::told;
use crate::audit::Entry;
use crate::digest::Digest;
use crate::envelope::Envelope;
use crate::error::{self, Result};
use crate::events::Told;
use crate::id::{ApprovalId, CallId, TenantId};
use crate::pin::visible;
use crate::scope::{Scope, Subject};
use crate::store::{Batch, Call, Change, Decision, Outcome, Status};
use crate::sync::lock;
use crate::text::first_line;

/// Why a call is made.
pub(super) struct Intent {
    /// What a person has said, of a call that waited.
    pub(super) approved: Option<Approved>,
    /// The rule that allows it.
    pub(super) reason: &'static str,
    /// Told when it is certain that the call is made, or that it is not.
    pub(super) begun: oneshot::Sender<Result<()>>,
    /// Told when it is over.
    pub(super) done: oneshot::Sender<CallView>,
}

/// A person's yes. It is kept and used up in one step, with the start of the call.
pub(super) struct Approved {
    pub(super) id: ApprovalId,
    pub(super) changes: Vec<Change>,
    pub(super) entry: Entry,
}

/// A call under way, and how it is stopped.
pub(super) struct Running {
    pub(super) subject: Subject,
    pub(super) stop: Arc<Notify>,
    /// How many are about to make it: of several who say yes at once, all but one find out that they are not the first.
    tries: usize,
}

/// What came of a call, before it is kept.
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

/// A call that was begun. If whoever makes it is gone before it was kept what came of it, that is not known.
struct Begun {
    hub: Arc<Hub>,
    tenant: TenantId,
    id: CallId,
    /// What those who watch are told then.
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
    /// Registers a running call. Returns what stops it.
    fn register_call(&self, scope: Scope, id: CallId) -> Arc<Notify> {
        let mut running = lock(&self.running);
        let new = || Running { subject: scope.subject(), stop: Arc::default(), tries: 0 };
        let running = running.entry((scope.tenant(), id)).or_insert_with(new);
        running.tries += 1;
        running.stop.clone()
    }

    /// Makes a call. What is about to be done is kept first; if that fails, nothing is done.
    pub(super) async fn carry_out(self: Arc<Self>, scope: Scope, plan: Plan, intent: Intent) {
        let (tenant, stop) = (scope.tenant(), self.register_call(scope, plan.id));
        let unknown = plan.told(Status::Unknown);
        let mut open = Begun { hub: self.clone(), tenant, id: plan.id, unknown, is_open: false };
        let Intent { approved, reason, begun, done } = intent;
        let approval = approved.as_ref().map(|approved| approved.id);
        // Before the call is sent: no read of the store may delay the commit of the outcome.
        let subject_name = self.caller_name(scope).await;
        let started = self.world.now();
        let has_begun = self.begin(scope, &plan, approved, reason, started).await;
        open.is_open = has_begun.is_ok();
        if has_begun.as_ref().is_err_and(|error| error.kind() == error::Kind::Unavailable) {
            self.late.doubt(tenant, plan.id, started); // it may have been kept that it is made
        }
        let _ = begun.send(has_begun); // whoever asked may have left
        if !open.is_open {
            return;
        }
        let came = tokio::select! {
            biased;
            came = self.reach(scope, &plan) => came,
            () = stop.notified() => Came::failed(Status::Cancelled, "it was cancelled while it was under way"),
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

    /// Keeps that a call is about to be made.
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
            batch = batch.tell(told::approval(id, plan.id, Decision::Used));
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

    /// Sends the call, once, with the credentials of whoever wants it.
    async fn reach(&self, scope: Scope, plan: &Plan) -> Came {
        let hidden = match self.secrets_of(scope, &plan.server).await {
            Ok(hidden) => hidden,
            Err(error) => return Came::failed(Status::Error, error.message()),
        };
        let mut sent = self.send(scope, plan).await;
        if let Ok(Some(Err(ClientError::Call(CallError::Closed(_))))) = sent {
            sent = self.send(scope, plan).await; // the connection had ended before: nothing was sent
        }
        let mut came = match sent {
            Err(error) => Came::failed(Status::Error, hidden.hide_in(error.message().to_owned())),
            Ok(None) => {
                let time = plan.server.settings.timeout;
                Came::failed(
                    Status::Unknown,
                    format!("no answer within {time:?}: it may have been done or not"),
                )
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
            let edited = "a person changed the arguments before the call was made";
            came.warning =
                Some(came.warning.map_or_else(|| edited.to_owned(), |other| format!("{edited}; {other}")));
        }
        came
    }

    /// The answer, if it came in time: tasks and questions of the server count, too.
    async fn send(&self, scope: Scope, plan: &Plan) -> Result<Option<Result<CallToolResult, ClientError>>> {
        let (client, time) = (self.client(scope, &plan.server).await?, plan.server.settings.timeout);
        // Each request of it has longer than all of them: one limit counts.
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

    /// Keeps what came of a call. What cannot be kept now is kept as soon as that is possible.
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
                    Err(error) => tracing::error!(call.id = %plan.id, %error, "a result could not be sealed"),
                }
            }
        }
        let error = self.sealed_error(tenant, plan.id, status, error.filter(|_| keeps)).await;
        let outcome = Outcome { status, result: sealed, error, at, keeps_arguments: keeps };
        let batch = Batch::new().change(Change::Finish { call: plan.id, outcome }).audit(entry);
        let mut batch = batch.tell(plan.told(status));
        if !keeps {
            self.passing.keep(tenant, view); // for whoever waits for it now
        }
        self.meters.call_over(tenant, plan.server.slug.as_str(), status, at.duration_since(started));
        match self.store.commit(tenant, batch.clone()).await {
            Ok(()) => {}
            Err(error) if error.kind() == error::Kind::Conflict => {
                // Another hub took this one for gone, and said that nobody knows. The audit says what is true.
                tracing::warn!(call.id = %plan.id, status = status.name(), "a call was given up before it was over");
                let entries = batch.audit.into_iter().map(|entry| entry.with("too_late", true)).collect();
                self.late.add(tenant, Batch { audit: entries, ..Batch::new() });
            }
            Err(error) => {
                tracing::error!(call.id = %plan.id, %error, "what came of a call cannot be kept now; it is tried again");
                self.passing.keep(tenant, view);
                if self.store.shared().is_none() {
                    // Here it counts already. Others are told when they can read it.
                    for told in std::mem::take(&mut batch.told) {
                        self.events.publish(tenant, told);
                    }
                }
                self.late.add(tenant, batch);
            }
        }
    }

    /// Whatever was under way when a hub ended, this one before or another, is not known to have been done.
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
                let text = "the hub ended while it was under way: whether it was done is not known";
                let outcome = self.failed(tenant, call.id, call.server, Status::Unknown, text).await;
                let entry = Entry::new(outcome.at, "hub", "call.done").with("call", call.id.to_string());
                let batch = Batch::new().change(Change::Finish { call: call.id, outcome });
                let batch = batch.audit(entry.with("status", Status::Unknown.name()));
                let batch = batch.tell(told::call(call.id, call.server, &call.tool, Status::Unknown));
                match self.store.commit(tenant, batch).await {
                    Err(error) if error.kind() == error::Kind::Conflict => continue, // another hub was quicker
                    done => done?,
                }
                count += 1;
            }
        }
    }
}

/// Whether the tool may have run although the call failed: always, unless it is certain that nothing was sent, or that the
/// server answered with an error. An error that is not listed here says nothing about the tool.
#[expect(clippy::match_same_arms, reason = "every error is named, and what is not is unknown")]
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
        // The server has sent a result, or asked for more: the tool had started.
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

/// What the SDK calls failures in which nothing was sent.
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
