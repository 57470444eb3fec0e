//! Calls, as they are remembered. Arguments and results are sealed where they are kept.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, interval_at};

use super::Hub;
use super::executor::Plan;
use super::subjects::Names;
use crate::envelope;
use crate::error::{self, Error, Result};
use crate::events::Watching;
use crate::id::{ApprovalId, CallId, SecretId, ServerId, TenantId};
use crate::names::{LONGEST, local};
use crate::scope::Scope;
use crate::store::{ApprovalFilter, Call, CallFilter, Outcome, Page, Paging, Status};
use crate::vault::Label;

/// How often whoever waits looks at what is kept.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A call, as it is remembered.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallView {
    /// Its id.
    #[schemars(with = "String")]
    pub id: CallId,
    /// The tool, by its name here; without it if the server is gone.
    pub name: Option<String>,
    /// The id of the server.
    #[schemars(with = "String")]
    pub server_id: ServerId,
    /// The short name of the server, if it is still there.
    pub server: Option<String>,
    /// The tool, as the server calls it.
    pub tool: String,
    /// The caller: `user:` or `agent:`, and an id.
    pub subject: String,
    /// The name of that user or agent. Absent if it was removed.
    pub subject_name: Option<String>,
    /// How far it is.
    pub status: Status,
    /// The arguments, if they are kept.
    pub arguments: Option<Value>,
    /// The arguments that were asked for, if a person has changed them.
    pub asked: Option<Value>,
    /// The result, if there is one and it is kept.
    pub result: Option<Value>,
    /// The text of the result.
    pub summary: Option<String>,
    /// What was left out of the result.
    pub warning: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The question to a person, if there was one.
    #[schemars(with = "Option<String>")]
    pub approval: Option<ApprovalId>,
    /// The digest of the arguments.
    pub digest: String,
    /// When it was wanted.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// When it was sent.
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// When it was over.
    #[schemars(with = "Option<String>")]
    pub completed: Option<Timestamp>,
}

impl CallView {
    /// A call of which nothing more is known than what is wanted.
    pub(super) fn of(scope: Scope, plan: &Plan, status: Status) -> Self {
        CallView {
            id: plan.id,
            name: Some(local(&plan.server.slug, &plan.tool.name, LONGEST)),
            server_id: plan.server.id,
            server: Some(plan.server.slug.as_str().to_owned()),
            tool: plan.tool.name.clone(),
            subject: scope.subject().to_string(),
            subject_name: None,
            status,
            arguments: Some(plan.arguments.clone()),
            asked: plan.asked.clone(),
            result: None,
            summary: None,
            warning: None,
            error: None,
            approval: None,
            digest: plan.digest().to_string(),
            created: plan.id.made().unwrap_or_default(),
            started: None,
            completed: None,
        }
    }

    pub(super) fn summarised(self) -> Self {
        CallView { summary: self.result.as_ref().map(envelope::summary), ..self }
    }
}

impl Hub {
    /// One call.
    pub async fn call(&self, scope: Scope, id: CallId) -> Result<CallView> {
        self.named_call(scope, id, &mut self.names(scope.tenant())).await
    }

    /// One call of a list whose names are looked up once.
    pub(super) async fn named_call(
        &self,
        scope: Scope,
        id: CallId,
        names: &mut Names<'_>,
    ) -> Result<CallView> {
        let call = self.store.call(scope.tenant(), id).await?;
        let call = call.filter(|call| may_see(scope, call)).ok_or_else(|| Error::not_found("call", id))?;
        let (has_result, status) = (call.result.is_some(), call.status);
        let view = self.view_call(scope.tenant(), call, true, names).await?;
        Ok(match self.passing.find(scope.tenant(), id) {
            // What is kept of it is less than what is known.
            Some(known) if !has_result && (status == known.status || !status.is_final()) => known,
            _ => view,
        })
    }

    /// Waits until a call is over, as it must if a person is asked. How far it is then.
    pub async fn wait(&self, scope: Scope, id: CallId) -> Result<CallView> {
        let mut watching = self.events.watch(scope.tenant(), None);
        let call = self.call(scope, id).await?;
        if call.status.is_final() {
            return Ok(call);
        }
        self.until_over(scope.tenant(), id, &mut watching).await?;
        self.call(scope, id).await
    }

    /// Calls, the newest first, without arguments and results. An agent sees its own.
    pub async fn calls(
        &self,
        scope: Scope,
        mut filter: CallFilter,
        paging: &Paging,
    ) -> Result<Page<CallView>> {
        if scope.agent().is_some() {
            filter.subject = Some(scope.subject().to_string());
        } else {
            scope.person()?;
        }
        let Page { items, next } = self.store.calls(scope.tenant(), &filter, paging).await?;
        let (mut views, mut names) = (Vec::with_capacity(items.len()), self.names(scope.tenant()));
        for call in items {
            views.push(self.view_call(scope.tenant(), call, false, &mut names).await?);
        }
        Ok(Page { items: views, next })
    }

    async fn view_call(
        &self,
        tenant: TenantId,
        call: Call,
        whole: bool,
        names: &mut Names<'_>,
    ) -> Result<CallView> {
        let server = match self.find_server(tenant, &call.server.to_string()).await {
            Ok(server) => Some(server),
            Err(error) if error.kind() == error::Kind::NotFound => None,
            Err(error) if error.code() == "server_not_in_file" => None,
            Err(error) => return Err(error),
        };
        let (mut arguments, mut asked, mut kept, mut approval) = (None, None, None, None);
        let error = self.unseal(tenant, call.id, "error", call.error.as_deref()).await?;
        if whole {
            (arguments, asked) = self.unseal_arguments(tenant, &call).await?;
            kept = self.unseal(tenant, call.id, "result", call.result.as_deref()).await?;
            let filter = ApprovalFilter { call: Some(call.id), decision: None };
            let page = self.store.approvals(tenant, &filter, &Paging { after: None, limit: 1 }).await?;
            approval = page.items.first().map(|approval| approval.id);
        }
        let (result, warning) = match kept {
            Some(mut kept) => (Some(kept["result"].take()), kept["warning"].as_str().map(str::to_owned)),
            None => (None, None),
        };
        let view = CallView {
            subject_name: names.of(&call.subject).await?,
            id: call.id,
            name: server.as_ref().map(|server| local(&server.slug, &call.tool, LONGEST)),
            server_id: call.server,
            server: server.map(|server| server.slug.as_str().to_owned()),
            tool: call.tool,
            subject: call.subject,
            status: call.status,
            arguments,
            asked,
            summary: None,
            result,
            warning,
            error: error.and_then(|error| error.as_str().map(str::to_owned)),
            approval,
            digest: call.digest.to_string(),
            created: call.created,
            started: call.started,
            completed: call.completed,
        };
        Ok(view.summarised())
    }

    /// Waits until a call is over; as long as it waits for a person, not longer than until the hub is about to end.
    /// `watching` was begun before anything could happen to it. What is kept is looked at every now and then, should nobody
    /// have told of it.
    pub(super) async fn until_over(
        &self,
        tenant: TenantId,
        id: CallId,
        watching: &mut Watching,
    ) -> Result<()> {
        let (id_text, mut ending, mut is_ending) = (id.to_string(), self.ending.subscribe(), false);
        let mut looks = interval_at(Instant::now() + LOOK_AGAIN, LOOK_AGAIN);
        loop {
            let next = tokio::select! {
                () = async { drop(ending.wait_for(Option::is_some).await) }, if !is_ending => {
                    is_ending = true;
                    let call = self.store.call(tenant, id).await?;
                    if call.is_none_or(|call| call.status == Status::Pending) {
                        return Ok(());
                    }
                    continue;
                }
                next = watching.next() => next.ok(),
                _ = looks.tick() => None,
            };
            let is_over = match next {
                Some(event) if event.kind == "call" && event.body["call"] == *id_text => {
                    event.body["status"].as_str().and_then(Status::find).is_some_and(Status::is_final)
                }
                Some(_) => false,
                None => self.store.call(tenant, id).await?.is_none_or(|call| call.status.is_final()),
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// The arguments of a call as they are kept: what is sent, and what was asked for if that is something else.
    pub(super) async fn seal_arguments(&self, tenant: TenantId, plan: &Plan) -> Result<Vec<u8>> {
        let kept = json!({ "arguments": plan.arguments, "asked": plan.asked });
        self.seal(tenant, plan.id, "arguments", &kept).await
    }

    pub(super) async fn unseal_arguments(
        &self,
        tenant: TenantId,
        call: &Call,
    ) -> Result<(Option<Value>, Option<Value>)> {
        let kept = self.unseal(tenant, call.id, "arguments", call.arguments.as_deref()).await?;
        let Some(mut kept) = kept else { return Ok((None, None)) };
        let asked = Some(kept["asked"].take()).filter(|asked| !asked.is_null());
        Ok((Some(kept["arguments"].take()), asked))
    }

    /// A call that ended without a result.
    pub(super) async fn failed(
        &self,
        tenant: TenantId,
        call: CallId,
        server: ServerId,
        status: Status,
        text: &str,
    ) -> Outcome {
        let error = self.sealed_error(tenant, call, status, Some(text.to_owned())).await;
        let server = self.find_server(tenant, &server.to_string()).await.ok();
        let keeps_arguments = server.is_some_and(|server| server.settings.keep_history);
        Outcome { status, result: None, error, at: self.world.now(), keeps_arguments }
    }

    /// Why a call failed, as it is kept. Where nothing of its content shall be, only how it ended is said.
    pub(super) async fn sealed_error(
        &self,
        tenant: TenantId,
        call: CallId,
        status: Status,
        text: Option<String>,
    ) -> Option<Vec<u8>> {
        let usual = match status {
            Status::Pending | Status::Running | Status::Success => None,
            Status::Error => Some("it failed"),
            Status::Denied => Some("it was not allowed"),
            Status::Cancelled => Some("it was given up"),
            Status::Unknown => Some("what came of it is not known"),
        };
        let text = text.or_else(|| usual.map(str::to_owned))?;
        match self.seal(tenant, call, "error", &text.into()).await {
            Ok(sealed) => Some(sealed),
            Err(error) => {
                tracing::error!(call.id = %call, %error, "why a call failed could not be sealed");
                None
            }
        }
    }

    /// Seals a part of a call.
    pub(super) async fn seal(
        &self,
        tenant: TenantId,
        call: CallId,
        part: &str,
        value: &Value,
    ) -> Result<Vec<u8>> {
        self.keys.encrypt(tenant, &label(call, part), value.to_string().as_bytes()).await
    }

    pub(super) async fn unseal(
        &self,
        tenant: TenantId,
        call: CallId,
        part: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Option<Value>> {
        let Some(sealed) = sealed else { return Ok(None) };
        let opened = self.keys.decrypt(tenant, &label(call, part), sealed).await?;
        let broken =
            |_| Error::new(error::Kind::Internal, "not_readable", "a call cannot be read: it is damaged");
        serde_json::from_slice(&opened).map(Some).map_err(broken)
    }
}

/// A part of a call is bound to it: in another place it cannot be opened.
fn label(call: CallId, part: &str) -> Label {
    Label { id: SecretId::fixed(0), kind: format!("call {part}"), bound_to: call.to_string() }
}

fn may_see(scope: Scope, call: &Call) -> bool {
    scope.agent().is_none() || call.subject == scope.subject().to_string()
}
