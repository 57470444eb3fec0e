//! Operations on call records: read, list and wait for the outcome. Arguments, results and errors are stored encrypted.

use std::time::Duration;

use jiff::Timestamp;
use linchpin::ErrorObject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, interval_at};

use super::arguments::CallArguments;
use super::plan::PlannedCall;
use crate::actor::Actor;
use crate::bounded_result;
use crate::error::{self, Error, Result};
use crate::events::EventSubscription;
use crate::hub::calls::Calls;
use crate::hub::identity::subject_names::SubjectNames;
use crate::id::{ApprovalId, CallId, SecretId, ServerId, TenantId};
use crate::store::{ApprovalFilter, CallFilter, CallOutcome, CallRecord, CallStatus, Page, PageRequest};
use crate::tool::names::{MAX_NAME_LEN, qualified_name};
use crate::vault::SecretBinding;

/// Interval at which callers that wait for a call poll the store.
pub(in crate::hub) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Call record as shown to users: caller, tool, status, arguments and result.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallView {
    /// Call id.
    #[schemars(with = "String")]
    pub id: CallId,
    /// Qualified name of the tool, such as `mcp_demo__add`. Absent if the server was removed.
    pub name: Option<String>,
    /// Id of the server whose tool was called.
    #[schemars(with = "String")]
    pub server_id: ServerId,
    /// Slug of the server whose tool was called. Absent if it was removed.
    pub server: Option<String>,
    /// Upstream name of the called tool.
    pub tool: String,
    /// Caller: `user:ID` or `agent:ID`.
    pub subject: String,
    /// Name of the user or agent that called the tool. Absent if it was removed.
    pub subject_name: Option<String>,
    /// Session that the caller has named, if the arguments are stored.
    pub session: Option<String>,
    /// Status of the call.
    pub status: CallStatus,
    /// Arguments, if they are stored.
    pub arguments: Option<Value>,
    /// Originally requested arguments, if a user has edited them.
    pub requested_arguments: Option<Value>,
    /// Result of the tool, if the call has ended with one and it is stored.
    pub result: Option<Value>,
    /// Text form of the result, truncated if it is too large.
    pub summary: Option<String>,
    /// Warnings, separated by `;`: the result was truncated, a user has edited the arguments, or requests of the server
    /// were declined.
    pub warning: Option<String>,
    /// Error message.
    pub error: Option<String>,
    /// JSON-RPC error with which the server rejected the call, for the caller that waited for it.
    #[serde(skip)]
    pub rejection: Option<Box<ErrorObject>>,
    /// Approval of the call, if one was requested.
    #[schemars(with = "Option<String>")]
    pub approval: Option<ApprovalId>,
    /// Digest of the arguments.
    pub digest: String,
    /// Time at which the call was requested.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time at which the call was sent.
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// Time at which the call finished.
    #[schemars(with = "Option<String>")]
    pub completed: Option<Timestamp>,
}

/// Arguments of a call in the form that is encrypted for its record.
#[derive(Serialize)]
struct ArgumentsRecord<'a> {
    arguments: &'a RawValue,
    /// Originally requested arguments, if a user has edited them.
    #[serde(rename = "asked")]
    requested: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

/// Decrypted arguments of a call record.
#[derive(Default)]
pub(in crate::hub) struct StoredArguments {
    pub(in crate::hub) arguments: Option<Value>,
    /// Originally requested arguments, if a user has edited them.
    pub(in crate::hub) requested: Option<Value>,
    /// Session that the caller has named.
    pub(in crate::hub) session: Option<String>,
}

impl CallView {
    /// Creates the view of a call without arguments and outcome.
    pub(in crate::hub) fn without_outcome(actor: Actor, plan: &PlannedCall, status: CallStatus) -> Self {
        CallView {
            id: plan.id,
            name: Some(plan.target.name.clone()),
            server_id: plan.target.server.id,
            server: Some(plan.target.server.slug.as_str().to_owned()),
            tool: plan.target.tool.name.clone(),
            subject: actor.subject().to_string(),
            subject_name: None,
            session: plan.session.clone(),
            status,
            arguments: None,
            requested_arguments: None,
            result: None,
            summary: None,
            warning: None,
            error: None,
            rejection: None,
            approval: None,
            digest: plan.digest.to_string(),
            created: plan.id.created_at().unwrap_or_default(),
            started: None,
            completed: None,
        }
    }

    pub(in crate::hub) fn with_summary(self) -> Self {
        CallView { summary: self.result.as_ref().map(bounded_result::summary), ..self }
    }
}

impl Calls {
    /// Returns one call.
    pub async fn call(&self, actor: Actor, id: CallId) -> Result<CallView> {
        self.call_with_names(actor, id, &mut self.identity.names(actor.tenant())).await
    }

    /// Returns one call of a list, with a shared cache of subject names.
    pub(in crate::hub) async fn call_with_names(
        &self,
        actor: Actor,
        id: CallId,
        names: &mut SubjectNames<'_>,
    ) -> Result<CallView> {
        let call = self.context.store.call(actor.tenant(), id).await?;
        let call =
            call.filter(|call| is_visible_to(actor, call)).ok_or_else(|| Error::not_found("call", id))?;
        let (has_result, status) = (call.result.is_some(), call.status);
        let view = self.view_call(actor.tenant(), call, true, names).await?;
        Ok(match self.recent_results.find(actor.tenant(), id) {
            // The cached result is more complete than the stored record.
            Some(recent) if !has_result && (status == recent.status || !status.is_final()) => recent,
            _ => view,
        })
    }

    /// Waits until a call has finished, including a pending approval, and returns it. At shutdown a pending call is
    /// returned as it is.
    pub async fn wait(&self, actor: Actor, id: CallId) -> Result<CallView> {
        let mut subscription = self.context.events.subscribe(actor.tenant(), None);
        let call = self.call(actor, id).await?;
        if call.status.is_final() {
            return Ok(call);
        }
        self.wait_until_final(actor.tenant(), id, &mut subscription).await?;
        self.call(actor, id).await
    }

    /// Lists calls, newest first, without arguments and results. An agent sees only its own.
    pub async fn list(
        &self,
        actor: Actor,
        mut filter: CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallView>> {
        if actor.agent().is_some() {
            filter.subject = Some(actor.subject().to_string());
        } else {
            actor.require_user()?;
        }
        let Page { items, next } = self.context.store.calls(actor.tenant(), &filter, paging).await?;
        let (mut views, mut names) = (Vec::with_capacity(items.len()), self.identity.names(actor.tenant()));
        for call in items {
            views.push(self.view_call(actor.tenant(), call, false, &mut names).await?);
        }
        Ok(Page { items: views, next })
    }

    async fn view_call(
        &self,
        tenant: TenantId,
        call: CallRecord,
        is_full: bool,
        names: &mut SubjectNames<'_>,
    ) -> Result<CallView> {
        let server = match self.servers.find_server(tenant, &call.server.to_string()).await {
            Ok(server) => Some(server),
            Err(error) if error.kind() == error::ErrorKind::NotFound => None,
            Err(error) if error.code() == "server_not_in_file" => None,
            Err(error) => return Err(error),
        };
        let (mut sent, mut stored, mut approval) = (StoredArguments::default(), None, None);
        let error = self.unseal(tenant, call.id, "error", call.error.as_deref()).await?;
        if is_full {
            sent = self.unseal_arguments(tenant, &call).await?;
            stored = self.unseal(tenant, call.id, "result", call.result.as_deref()).await?;
            let filter = ApprovalFilter { call: Some(call.id), decision: None };
            let page =
                self.context.store.approvals(tenant, &filter, &PageRequest { after: None, limit: 1 }).await?;
            approval = page.items.first().map(|approval| approval.id);
        }
        let (result, warning) = match stored {
            Some(mut stored) => {
                (Some(stored["result"].take()), stored["warning"].as_str().map(str::to_owned))
            }
            None => (None, None),
        };
        let view = CallView {
            subject_name: names.get(&call.subject).await?,
            id: call.id,
            name: server.as_ref().map(|server| qualified_name(&server.slug, &call.tool, MAX_NAME_LEN)),
            server_id: call.server,
            server: server.map(|server| server.slug.as_str().to_owned()),
            tool: call.tool,
            subject: call.subject,
            session: sent.session,
            status: call.status,
            arguments: sent.arguments,
            requested_arguments: sent.requested,
            summary: None,
            result,
            warning,
            error: error.and_then(|error| error.as_str().map(str::to_owned)),
            rejection: None,
            approval,
            digest: call.digest.to_string(),
            created: call.created,
            started: call.started,
            completed: call.completed,
        };
        Ok(view.with_summary())
    }

    /// Waits until a call has finished; a pending call only until the shutdown begins. `subscription` must be created
    /// before the status of the call is read. The store is polled as well, in case an event was missed.
    pub(in crate::hub) async fn wait_until_final(
        &self,
        tenant: TenantId,
        id: CallId,
        subscription: &mut EventSubscription,
    ) -> Result<()> {
        let (id_text, mut shutdown, mut is_shutting_down) =
            (id.to_string(), self.context.shutdown_started.subscribe(), false);
        let mut polls = interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        loop {
            let next = tokio::select! {
                () = async { drop(shutdown.wait_for(Option::is_some).await) }, if !is_shutting_down => {
                    is_shutting_down = true;
                    let call = self.context.store.call(tenant, id).await?;
                    if call.is_none_or(|call| call.status == CallStatus::Pending) {
                        return Ok(());
                    }
                    continue;
                }
                next = subscription.next() => next.ok(),
                _ = polls.tick() => None,
            };
            let is_finished = match next {
                Some(event) if event.kind == "call" && event.body["call"] == *id_text => {
                    event.body["status"].as_str().and_then(CallStatus::find).is_some_and(CallStatus::is_final)
                }
                Some(_) => false,
                None => self.context.store.call(tenant, id).await?.is_none_or(|call| call.status.is_final()),
            };
            if is_finished {
                return Ok(());
            }
        }
    }

    /// Encrypts the arguments of a call: those to send, the requested ones if a user has edited them, and the session.
    pub(in crate::hub) async fn seal_arguments(
        &self,
        tenant: TenantId,
        plan: &PlannedCall,
    ) -> Result<Vec<u8>> {
        let record = ArgumentsRecord {
            arguments: plan.arguments.text(),
            requested: plan.requested_arguments.as_ref().map(CallArguments::text),
            session: plan.session.as_deref(),
        };
        self.seal(tenant, plan.id, "arguments", &record).await
    }

    pub(in crate::hub) async fn unseal_arguments(
        &self,
        tenant: TenantId,
        call: &CallRecord,
    ) -> Result<StoredArguments> {
        let stored = self.unseal(tenant, call.id, "arguments", call.arguments.as_deref()).await?;
        let Some(mut stored) = stored else { return Ok(StoredArguments::default()) };
        Ok(StoredArguments {
            requested: Some(stored["asked"].take()).filter(|requested| !requested.is_null()),
            session: stored["session"].as_str().map(str::to_owned),
            arguments: Some(stored["arguments"].take()),
        })
    }

    /// Builds the outcome of a call that ended without a result.
    pub(in crate::hub) async fn failed_outcome(
        &self,
        tenant: TenantId,
        call: CallId,
        server: ServerId,
        status: CallStatus,
        text: &str,
    ) -> CallOutcome {
        let error = self.sealed_error(tenant, call, status, Some(text.to_owned())).await;
        let server = self.servers.find_server(tenant, &server.to_string()).await.ok();
        let retains_arguments = server.is_some_and(|server| server.settings.keep_history);
        CallOutcome { status, result: None, error, at: self.context.platform.now(), retains_arguments }
    }

    /// Encrypts the error message of a call for its record. Without a text, only a generic one for the status is
    /// stored.
    pub(in crate::hub) async fn sealed_error(
        &self,
        tenant: TenantId,
        call: CallId,
        status: CallStatus,
        text: Option<String>,
    ) -> Option<Vec<u8>> {
        let default_text = match status {
            CallStatus::Pending | CallStatus::Running | CallStatus::Success => None,
            CallStatus::Error => Some("the call failed"),
            CallStatus::Denied => Some("the call was denied"),
            CallStatus::Cancelled => Some("the call was cancelled"),
            CallStatus::Unknown => Some("the outcome of the call is unknown"),
        };
        let text = text.or_else(|| default_text.map(str::to_owned))?;
        match self.seal(tenant, call, "error", &text).await {
            Ok(sealed) => Some(sealed),
            Err(error) => {
                tracing::error!(call.id = %call, %error, "failed to encrypt the error of a call");
                None
            }
        }
    }

    /// Encrypts a part of a call record, such as its arguments or result.
    pub(in crate::hub) async fn seal(
        &self,
        tenant: TenantId,
        call: CallId,
        part: &str,
        value: &(impl Serialize + Sync),
    ) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(value).expect("a part of a call record has a JSON form");
        self.context.keys.encrypt(tenant, &part_binding(call, part), &text).await
    }

    pub(in crate::hub) async fn unseal(
        &self,
        tenant: TenantId,
        call: CallId,
        part: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Option<Value>> {
        let Some(sealed) = sealed else { return Ok(None) };
        let plaintext = self.context.keys.decrypt(tenant, &part_binding(call, part), sealed).await?;
        let broken = |_| {
            Error::new(
                error::ErrorKind::Internal,
                "record_unreadable",
                "the stored arguments or result of the call are damaged: restore a backup",
            )
        };
        serde_json::from_slice(&plaintext).map(Some).map_err(broken)
    }
}

/// Binds a part to its call, so that it cannot be decrypted as part of another one.
fn part_binding(call: CallId, part: &str) -> SecretBinding {
    SecretBinding { id: SecretId::from_u128(0), kind: format!("call {part}"), bound_to: call.to_string() }
}

fn is_visible_to(actor: Actor, call: &CallRecord) -> bool {
    actor.agent().is_none() || call.subject == actor.subject().to_string()
}
