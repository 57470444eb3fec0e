//! Call records: read, list and wait. Arguments, results and errors are stored encrypted.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, interval_at};

use super::Hub;
use super::admit::Plan;
use super::subject_names::Names;
use crate::actor::Scope;
use crate::bounded_result;
use crate::error::{self, Error, Result};
use crate::events::Watching;
use crate::id::{ApprovalId, CallId, SecretId, ServerId, TenantId};
use crate::store::{ApprovalFilter, Call, CallFilter, Outcome, Page, Paging, Status};
use crate::tool::names::{LONGEST, local};
use crate::vault::Label;

/// Interval at which waiting callers poll the store.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Call record.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallView {
    /// Call id.
    #[schemars(with = "String")]
    pub id: CallId,
    /// Qualified name of the tool. Absent if the server was removed.
    pub name: Option<String>,
    /// Server id.
    #[schemars(with = "String")]
    pub server_id: ServerId,
    /// Slug of the server. Absent if it was removed.
    pub server: Option<String>,
    /// Upstream name of the tool.
    pub tool: String,
    /// The caller: `user:` or `agent:`, and an id.
    pub subject: String,
    /// The name of that user or agent. Absent if it was removed.
    pub subject_name: Option<String>,
    /// Status of the call.
    pub status: Status,
    /// Arguments, if they are stored.
    pub arguments: Option<Value>,
    /// Originally requested arguments, if a user has edited them.
    pub asked: Option<Value>,
    /// Result, if there is one and it is stored.
    pub result: Option<Value>,
    /// Text of the result.
    pub summary: Option<String>,
    /// What was left out of the result, and whether a user has edited the arguments.
    pub warning: Option<String>,
    /// Error message.
    pub error: Option<String>,
    /// Approval of the call, if one was requested.
    #[schemars(with = "Option<String>")]
    pub approval: Option<ApprovalId>,
    /// Digest of the arguments.
    pub digest: String,
    /// Time of the request.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time at which the call was sent.
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// Time at which the call finished.
    #[schemars(with = "Option<String>")]
    pub completed: Option<Timestamp>,
}

impl CallView {
    /// Creates the view of a call without an outcome.
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
        CallView { summary: self.result.as_ref().map(bounded_result::summary), ..self }
    }
}

impl Hub {
    /// Returns one call.
    pub async fn call(&self, scope: Scope, id: CallId) -> Result<CallView> {
        self.named_call(scope, id, &mut self.names(scope.tenant())).await
    }

    /// Returns one call of a list, with a shared cache of subject names.
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
            // The cached result is more complete than the stored record.
            Some(known) if !has_result && (status == known.status || !status.is_final()) => known,
            _ => view,
        })
    }

    /// Waits until a call has finished, including a pending approval, and returns it. At shutdown a pending call is
    /// returned as it is.
    pub async fn wait(&self, scope: Scope, id: CallId) -> Result<CallView> {
        let mut watching = self.events.watch(scope.tenant(), None);
        let call = self.call(scope, id).await?;
        if call.status.is_final() {
            return Ok(call);
        }
        self.until_over(scope.tenant(), id, &mut watching).await?;
        self.call(scope, id).await
    }

    /// Lists calls, newest first, without arguments and results. An agent sees only its own.
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

    /// Waits until a call has finished; a pending call only until the shutdown begins. `watching` must be created
    /// before the status of the call is read. The store is polled as well, in case an event was missed.
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

    /// Encrypts the arguments of a call: those to send, and the requested ones if a user has edited them.
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

    /// Builds the outcome of a call that ended without a result.
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

    /// Encrypts the error of a call. Without a text, only a generic one for the status is stored.
    pub(super) async fn sealed_error(
        &self,
        tenant: TenantId,
        call: CallId,
        status: Status,
        text: Option<String>,
    ) -> Option<Vec<u8>> {
        let usual = match status {
            Status::Pending | Status::Running | Status::Success => None,
            Status::Error => Some("the call failed"),
            Status::Denied => Some("the call was denied"),
            Status::Cancelled => Some("the call was cancelled"),
            Status::Unknown => Some("the outcome is unknown"),
        };
        let text = text.or_else(|| usual.map(str::to_owned))?;
        match self.seal(tenant, call, "error", &text.into()).await {
            Ok(sealed) => Some(sealed),
            Err(error) => {
                tracing::error!(call.id = %call, %error, "failed to encrypt the error of a call");
                None
            }
        }
    }

    /// Encrypts a part of a call.
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
        let broken = |_| Error::new(error::Kind::Internal, "not_readable", "the call record is damaged");
        serde_json::from_slice(&opened).map(Some).map_err(broken)
    }
}

/// Binds a part to its call, so that it cannot be decrypted as part of another one.
fn label(call: CallId, part: &str) -> Label {
    Label { id: SecretId::fixed(0), kind: format!("call {part}"), bound_to: call.to_string() }
}

fn may_see(scope: Scope, call: &Call) -> bool {
    scope.agent().is_none() || call.subject == scope.subject().to_string()
}
