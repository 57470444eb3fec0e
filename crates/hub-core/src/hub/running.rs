//! The end of the road: what is about to be done is kept, then done, and what came of it is kept. A hub that is killed in
//! between finds out at its next start that it does not know what became of the call; it is never made twice.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::encode::to_value;
use linchpin::model::CallToolResult;
use linchpin::{CallError, ClientError, Revision};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::Hub;
use super::executor::Plan;
use super::history::CallView;
use crate::audit::Entry;
use crate::digest::Digest;
use crate::envelope::Envelope;
use crate::error::{self, Error, Result};
use crate::id::{ApprovalId, CallId};
use crate::scope::Scope;
use crate::store::{Batch, CallFilter, Change, Outcome, Paging, Status};
use crate::sync::lock;

/// Why a call is made.
pub(super) struct Intent {
    /// The approval that is used up with it, of a call that waited.
    pub(super) approval: Option<ApprovalId>,
    /// The rule that allows it.
    pub(super) reason: &'static str,
    /// Told when it is certain that the call is made, or that it is not.
    pub(super) begun: oneshot::Sender<Result<()>>,
    /// Told when it is over.
    pub(super) done: oneshot::Sender<CallView>,
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

impl Hub {
    /// Makes a call. What is about to be done is kept first; if that fails, nothing is done.
    pub(super) async fn carry_out(self: Arc<Self>, scope: Scope, plan: Plan, intent: Intent) {
        let stop = Arc::new(Notify::new());
        lock(&self.running).insert((scope.tenant(), plan.id), stop.clone());
        let begun = self.begin(scope, &plan, &intent).await;
        let has_begun = begun.is_ok();
        let _ = intent.begun.send(begun); // whoever asked may have left
        if has_begun {
            let started = self.world.now();
            self.call_changed(scope.tenant(), &plan, Status::Running);
            let came = tokio::select! {
                biased;
                came = self.reach(scope, &plan) => came,
                () = stop.notified() => Came::failed(Status::Cancelled, "it was cancelled while it was under way"),
            };
            let (came, completed) = self.keep(scope, &plan, came).await;
            let Came { status, result, warning, error } = came;
            let view = CallView {
                result,
                warning,
                error,
                approval: intent.approval,
                started: Some(started),
                completed: Some(completed),
                ..CallView::of(scope, &plan, status)
            };
            let _ = intent.done.send(view.summarised());
        }
        lock(&self.running).remove(&(scope.tenant(), plan.id));
    }

    async fn begin(&self, scope: Scope, plan: &Plan, intent: &Intent) -> Result<()> {
        let mut entry = self.about(scope, "call.intent", plan).with("reason", intent.reason);
        let mut batch = Batch::new();
        if let Some(approval) = intent.approval {
            let (digest, at) = (plan.binding(scope), self.world.now());
            entry = entry.with("approval", approval.to_string());
            batch = batch.change(Change::Use { approval, digest, at });
            batch = batch.change(Change::Start { call: plan.id, at });
        } else {
            let call = self.record(scope, plan, Status::Running).await?;
            batch = batch.change(Change::Open(Box::new(call)));
        }
        self.store.commit(scope.tenant(), batch.audit(entry)).await
    }

    /// Sends the call, once, with the credentials of whoever wants it.
    async fn reach(&self, scope: Scope, plan: &Plan) -> Came {
        let hidden = match self.secrets_of(scope, &plan.server).await {
            Ok(hidden) => hidden,
            Err(error) => return Came::failed(Status::Error, error.message()),
        };
        let mut sent = self.send(scope, plan).await;
        if let Ok(Err(ClientError::Call(CallError::Closed(_)))) = sent {
            sent = self.send(scope, plan).await; // the connection had ended before: nothing was sent
        }
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Came::failed(Status::Error, hidden.hide_in(error.message().to_owned())),
        };
        match answer {
            Ok(result) => {
                let result = hidden.hide(to_value(&result, Revision::LATEST));
                let Envelope { result, is_error, warning, summary } =
                    Envelope::new(result, self.options.result_limit);
                let status = if is_error { Status::Error } else { Status::Success };
                let error = is_error.then(|| crate::text::first_line(&summary));
                Came { status, result: Some(result), warning, error }
            }
            Err(error) => {
                let status = if was_sent(&error) { Status::Unknown } else { Status::Error };
                Came::failed(status, crate::pin::visible(&hidden.hide_in(error.to_string())))
            }
        }
    }

    async fn send(&self, scope: Scope, plan: &Plan) -> Result<Result<CallToolResult, ClientError>> {
        let client = self.client(scope, &plan.server, false).await?;
        Ok(client.call(plan.tool.name.as_str(), &plan.arguments).await)
    }

    /// Keeps what came of a call, and when. What cannot be kept now is kept as soon as that is possible.
    async fn keep(&self, scope: Scope, plan: &Plan, came: Came) -> (Came, Timestamp) {
        let (tenant, now) = (scope.tenant(), self.world.now());
        let Came { status, result, warning, error } = &came;
        let status = *status;
        let mut entry =
            self.entry(scope, "call.done").with("call", plan.id.to_string()).with("status", status.name());
        let mut sealed = None;
        if let Some(result) = result {
            entry = entry.with("result", Digest::of("linchpin result").json(result).end().to_string());
            if plan.server.settings.keep_history {
                let kept = json!({ "result": result, "warning": warning });
                match self.seal(tenant, plan.id, "result", &kept).await {
                    Ok(bytes) => sealed = Some(bytes),
                    Err(error) => tracing::error!(call.id = %plan.id, %error, "a result could not be sealed"),
                }
            }
        }
        if !plan.server.settings.keep_history {
            // For whoever waits for it now, and nobody later.
            self.passing.keep(tenant, plan.id, result.clone(), warning.clone());
        }
        let outcome = Outcome {
            status,
            result: sealed,
            error: error.clone(),
            at: now,
            keeps_arguments: plan.server.settings.keep_history,
        };
        let batch = Batch::new().change(Change::Finish { call: plan.id, outcome }).audit(entry);
        self.meters.call_over(plan.server.slug.as_str(), status, now.duration_since(plan_time(plan, now)));
        if let Err(error) = self.store.commit(tenant, batch.clone()).await {
            tracing::error!(call.id = %plan.id, %error, "what came of a call cannot be kept now; it is tried again");
            self.late.add(tenant, batch);
        }
        self.call_changed(tenant, plan, status);
        (came, now)
    }

    /// Gives up a call that waits or is under way.
    pub async fn cancel_call(&self, scope: Scope, id: CallId) -> Result<CallView> {
        let call = self.call(scope, id).await?; // whoever may see it may give it up
        match call.status {
            Status::Pending => {
                let now = self.world.now();
                let text = "whoever wanted it gave it up";
                let outcome = Outcome::failed(Status::Cancelled, text, now);
                let entry = self.entry(scope, "call.cancelled").with("call", id.to_string());
                let batch = Batch::new().change(Change::Finish { call: id, outcome }).audit(entry);
                self.store.commit(scope.tenant(), batch).await?;
                let body = json!({ "call": id, "server": call.server_id, "tool": call.tool, "status": Status::Cancelled });
                self.events.publish(scope.tenant(), "call", body);
            }
            Status::Running => {
                let stop = lock(&self.running).get(&(scope.tenant(), id)).cloned();
                let mut watching = self.events.watch(scope.tenant(), None);
                let entry = self.entry(scope, "call.cancelled").with("call", id.to_string());
                self.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
                if let Some(stop) = stop {
                    stop.notify_one();
                    self.until_over(scope.tenant(), id, &mut watching).await?;
                }
            }
            over => {
                let text = format!("the call is over: it is {}", over.name());
                return Err(Error::new(error::Kind::Conflict, "call_over", text));
            }
        }
        self.call(scope, id).await
    }

    /// After a start: whatever was under way when the hub ended is not known to have been done. What a person has said
    /// yes to and was not made is made now.
    pub async fn recover(self: &Arc<Self>) -> Result<usize> {
        let mut count = 0;
        for tenant in self.store.tenants().await? {
            let filter = CallFilter { status: Some(Status::Running), ..CallFilter::default() };
            loop {
                let page = self.store.calls(tenant, &filter, &Paging { after: None, limit: 100 }).await?;
                if page.items.is_empty() {
                    break;
                }
                let now = self.world.now();
                let mut batch = Batch::new();
                for call in page.items {
                    let text = "the hub ended while it was under way: whether it was done is not known";
                    let outcome = Outcome::failed(Status::Unknown, text, now);
                    let entry = Entry::new(now, "hub", "call.done").with("call", call.id.to_string());
                    batch = batch.change(Change::Finish { call: call.id, outcome });
                    batch = batch.audit(entry.with("status", Status::Unknown.name()));
                    count += 1;
                }
                self.store.commit(tenant, batch).await?;
            }
            self.resume_approved(tenant).await?;
        }
        Ok(count)
    }
}

/// When the call was asked for, by its id.
fn plan_time(plan: &Plan, now: Timestamp) -> Timestamp {
    plan.id.made().unwrap_or(now)
}

/// Whether the server may have done it.
fn was_sent(error: &ClientError) -> bool {
    match error {
        ClientError::OutcomeUnknown { .. } => true,
        ClientError::Call(error) => matches!(error, CallError::TimedOut(_) | CallError::Lost(_)),
        _ => false,
    }
}
