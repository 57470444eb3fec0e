//! Calls, as they are remembered. Arguments and results are sealed where they are kept.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Hub;
use super::executor::Plan;
use crate::envelope;
use crate::error::{self, Error, Result};
use crate::events::Watching;
use crate::id::{ApprovalId, CallId, SecretId, ServerId, TenantId};
use crate::names::{LONGEST, local};
use crate::scope::Scope;
use crate::store::{ApprovalFilter, Call, CallFilter, Page, Paging, Status};
use crate::vault::Label;

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
    /// Who wanted it.
    pub subject: String,
    /// How far it is.
    pub status: Status,
    /// The arguments, if they are kept.
    pub arguments: Option<Value>,
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
            status,
            arguments: Some(plan.arguments.clone()),
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
        let call = self.store.call(scope.tenant(), id).await?;
        let call = call.filter(|call| may_see(scope, call)).ok_or_else(|| Error::not_found("call", id))?;
        self.view_call(scope.tenant(), call, true).await
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
        let mut views = Vec::with_capacity(items.len());
        for call in items {
            views.push(self.view_call(scope.tenant(), call, false).await?);
        }
        Ok(Page { items: views, next })
    }

    async fn view_call(&self, tenant: TenantId, call: Call, whole: bool) -> Result<CallView> {
        let server = match self.find_server(tenant, &call.server.to_string()).await {
            Ok(server) => Some(server),
            Err(error) if error.kind() == error::Kind::NotFound => None,
            Err(error) if error.code() == "server_not_in_file" => None,
            Err(error) => return Err(error),
        };
        let (mut arguments, mut kept) = (None, None);
        let mut approval = None;
        if whole {
            arguments = self.unseal(tenant, call.id, "arguments", call.arguments.as_deref()).await?;
            kept = self.unseal(tenant, call.id, "result", call.result.as_deref()).await?;
            let filter = ApprovalFilter { call: Some(call.id), decision: None };
            let asked = self.store.approvals(tenant, &filter, &Paging { after: None, limit: 1 }).await?;
            approval = asked.items.first().map(|approval| approval.id);
        }
        let kept =
            kept.map(|mut kept: Value| (kept["result"].take(), kept["warning"].as_str().map(str::to_owned)));
        let (result, warning) = match kept.or_else(|| self.passing.find(tenant, call.id).filter(|_| whole)) {
            Some((result, warning)) => (Some(result), warning),
            None => (None, None),
        };
        let view = CallView {
            id: call.id,
            name: server.as_ref().map(|server| local(&server.slug, &call.tool, LONGEST)),
            server_id: call.server,
            server: server.map(|server| server.slug.as_str().to_owned()),
            tool: call.tool,
            subject: call.subject,
            status: call.status,
            arguments,
            summary: None,
            result,
            warning,
            error: call.error,
            approval,
            digest: call.digest.to_string(),
            created: call.created,
            started: call.started,
            completed: call.completed,
        };
        Ok(view.summarised())
    }

    /// Waits until a call is over. `watching` was begun before anything could happen to it.
    pub(super) async fn until_over(
        &self,
        tenant: TenantId,
        id: CallId,
        watching: &mut Watching,
    ) -> Result<()> {
        let id_text = id.to_string();
        loop {
            match watching.next().await {
                Ok(event) if event.kind == "call" && event.body["call"] == *id_text => {
                    let status = event.body["status"].as_str().and_then(Status::find);
                    if status.is_some_and(Status::is_final) {
                        return Ok(());
                    }
                }
                Ok(_) => {}
                // So much has happened meanwhile that not all of it is known any more.
                Err(_) => {
                    let call = self.store.call(tenant, id).await?;
                    if call.is_none_or(|call| call.status.is_final()) {
                        return Ok(());
                    }
                }
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
        let key = self.keys.of(tenant).await?;
        Ok(key.seal(&*self.world, &label(call, part), value.to_string().as_bytes()))
    }

    pub(super) async fn unseal(
        &self,
        tenant: TenantId,
        call: CallId,
        part: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Option<Value>> {
        let Some(sealed) = sealed else { return Ok(None) };
        let opened = self.keys.of(tenant).await?.open(&label(call, part), sealed)?;
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
