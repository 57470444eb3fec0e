//! Call admission: rate limit of the caller → tool lookup → policy → arguments → rate limit of the server → approval.
//! Admitted calls are sent by [`running`](super::execute); nothing else calls a tool.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::call_records::CallView;
use super::egress_denials::Refusal;
use super::execute::{Approved, Intent};
use super::repeated_events::Repeated as _;
use super::sync::tool_id;
use super::tools::slug_in;
use super::{Hub, event_payloads};
use crate::actor::Scope;
use crate::agent::Agent;
use crate::audit::Entry;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::Told;
use crate::id::{ApprovalId, CallId};
use crate::lock::lock;
use crate::policy::{self, Caller, Reason, Verdict};
use crate::rate_limit::too_many;
use crate::server::Server;
use crate::store::{Approval, Batch, Call, Change, Decision, Key, Kind, Room, Status};
use crate::telemetry;
use crate::tool::Tool;

/// Maximum size of arguments as JSON, in bytes.
const LARGEST: usize = 4 << 20;
/// Maximum length of the stored reason of a rejected call, in characters.
const MAX_REASON_LEN: usize = 2_000;
/// Running calls, and calls waiting for an approval, per subject.
const MOST_AT_ONCE: usize = 256;
const MOST_WAITING: u32 = 100;

/// Reference to a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Qualified name.
    Local(String),
    /// Upstream name at a server.
    Of {
        /// Server id or slug.
        server: String,
        /// Upstream name of the tool.
        tool: String,
    },
}

impl Which {
    /// Adds the names that the caller sent to an audit entry.
    fn named(&self, entry: Entry) -> Entry {
        match self {
            Which::Local(name) => entry.with("tool", name.as_str()),
            Which::Of { server, tool } => entry.with("server", server.as_str()).with("tool", tool.as_str()),
        }
    }

    /// Returns the id or slug of the server in the reference.
    fn server(&self) -> Option<&str> {
        match self {
            Which::Local(name) => slug_in(name),
            Which::Of { server, .. } => Some(server),
        }
    }
}

/// Requested tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Tool to call.
    pub tool: Which,
    /// Arguments; must be an object.
    pub arguments: Value,
}

/// Call after tool lookup and policy decision.
pub(super) struct Plan {
    pub(super) id: CallId,
    pub(super) server: Server,
    pub(super) tool: Tool,
    pub(super) arguments: Value,
    /// Originally requested arguments, if a user has edited them.
    pub(super) asked: Option<Value>,
    pub(super) verdict: Verdict,
    /// Versions of the documents that the policy decision is based on.
    pub(super) by: Vec<(Key, u64)>,
}

impl Plan {
    /// Returns the digest of the arguments.
    pub(super) fn digest(&self) -> Digest {
        Digest::of("linchpin arguments").json(&self.arguments).end()
    }

    /// Adds the fields that identify this call to an audit entry.
    fn described(&self, entry: Entry) -> Entry {
        entry
            .with("call", self.id.to_string())
            .with("pin", crate::tool::pin::pin(&self.tool.definition).to_string())
            .with("arguments", self.digest().to_string())
    }

    /// Creates the call record before the call starts.
    fn call(&self, scope: Scope, status: Status, arguments: Option<Vec<u8>>, now: Timestamp) -> Call {
        Call {
            id: self.id,
            server: self.server.id,
            tool: self.tool.name.clone(),
            subject: scope.subject().to_string(),
            status,
            digest: self.digest(),
            arguments,
            result: None,
            error: None,
            created: self.id.made().unwrap_or(now),
            started: None,
            completed: None,
        }
    }

    /// Returns the event for subscribers.
    pub(super) fn told(&self, status: Status) -> Told {
        event_payloads::call(self.id, self.server.id, &self.tool.name, status)
    }

    /// Returns the digest that an approval is bound to.
    pub(super) fn binding(&self, scope: Scope) -> Digest {
        policy::binding(scope.subject(), self.server.id, &self.tool.definition, &self.arguments)
    }
}

impl Hub {
    /// Calls a tool and returns the call record, also if the policy or a user denies the call. With `wait`, waits for a
    /// pending approval.
    pub async fn call_tool(self: &Arc<Self>, scope: Scope, wanted: Wanted, wait: bool) -> Result<CallView> {
        let call = self.begin_call(scope, wanted, wait).await?;
        if wait && !call.status.is_final() { self.wait(scope, call.id).await } else { Ok(call) }
    }

    /// Like [`Self::call_tool`], but does not wait for an approval.
    pub async fn begin_call(self: &Arc<Self>, scope: Scope, wanted: Wanted, wait: bool) -> Result<CallView> {
        let again = self.store.shared().map(|_| wanted.clone());
        let server = wanted.tool.server().map(str::to_owned);
        match (self.try_call(scope, wanted, wait, true).await, again) {
            // Another hub has just changed a document that the decision is based on: decide again, once.
            (Err(error), Some(again)) if error.code() == "changed_meanwhile" => {
                self.try_call(scope, again, wait, false).await
            }
            (Err(error), _) => Err(match server {
                Some(server) => self.why_missing(scope, &server, error).await,
                None => error,
            }),
            (begun, _) => begun,
        }
    }

    async fn try_call(
        self: &Arc<Self>,
        scope: Scope,
        wanted: Wanted,
        wait: bool,
        is_first: bool,
    ) -> Result<CallView> {
        if !wanted.arguments.is_object() {
            return Err(Error::invalid("arguments", "must be an object"));
        }
        if is_first {
            // Before any lookup: an unknown tool consumes the limit as well.
            self.take_turn(scope, || wanted.tool.named(self.entry(scope, "call.limited"))).await?;
        }
        self.check_room(scope)?;
        let plan = self.plan(scope, wanted).await?;
        let (reason, is_asked) = match plan.verdict {
            Verdict::Deny(reason) => {
                return self.refuse(scope, plan, Status::Denied, reason.code(), reason.text()).await;
            }
            Verdict::Ask(reason) => (reason, true),
            Verdict::Allow(reason) => (reason, false),
        };
        if let Err(faults) = self.check_arguments(&plan.tool, &plan.arguments) {
            return self.refuse(scope, plan, Status::Error, "invalid_arguments", &faults).await;
        }
        if is_first {
            let limited = || self.about_tool(scope, "call.limited", &plan.server, &plan.tool);
            self.take_turn_at(scope, &plan.server, limited).await?;
        }
        let id = plan.id;
        if is_asked {
            self.ask(scope, &plan, reason).await?;
            return self.call(scope, id).await;
        }
        let over = self.make(scope, plan, None, reason.code()).await?;
        if wait { over.await.map_err(|_| not_known(id)) } else { self.call(scope, id).await }
    }

    /// Starts a call in its own task, so that it finishes even if the caller is dropped. Returns after the start is
    /// recorded; the receiver yields the outcome.
    pub(super) async fn make(
        self: &Arc<Self>,
        scope: Scope,
        plan: Plan,
        approved: Option<Approved>,
        reason: &'static str,
    ) -> Result<oneshot::Receiver<CallView>> {
        let ((begun, has_begun), (done, is_done)) = (oneshot::channel(), oneshot::channel());
        let span = tracing::trace_span!(
            target: telemetry::TARGET,
            "call",
            otel.name = %format_args!("tools/call {}", plan.tool.name),
            otel.kind = "client",
            otel.status_code = Empty,
            linchpin.server = plan.server.slug.as_str(),
            linchpin.tool = plan.tool.name.as_str(),
            linchpin.call.id = %plan.id,
            linchpin.status = Empty,
        );
        let call = self.clone().carry_out(scope, plan, Intent { approved, reason, begun, done });
        self.tasks.start(call.instrument(span));
        has_begun.await.unwrap_or_else(|_| Err(Error::ending()))?;
        Ok(is_done)
    }

    /// Resolves the tool and evaluates the policy.
    async fn plan(&self, scope: Scope, wanted: Wanted) -> Result<Plan> {
        let (server, tool, version) = match wanted.tool {
            Which::Local(name) => self.visible_tool(scope, &name, "call.refused").await?,
            Which::Of { server, tool } => self.visible_tool_of(scope, &server, &tool, "call.refused").await?,
        };
        let (verdict, by) = self.verdict(scope, &server, (&tool, version)).await?;
        Ok(Plan {
            id: CallId::new(&*self.world),
            server,
            tool,
            arguments: wanted.arguments,
            asked: None,
            verdict,
            by,
        })
    }

    /// In a cluster, makes the commit fail if another hub has changed a document that the decision is based on.
    pub(super) fn rules(&self, plan: &Plan) -> Option<Change> {
        self.store.shared().map(|_| Change::Same(plan.by.clone()))
    }

    /// Evaluates the policy. Returns the decision and the document versions that it is based on.
    pub(super) async fn verdict(
        &self,
        scope: Scope,
        server: &Server,
        (tool, version): (&Tool, u64),
    ) -> Result<(Verdict, Vec<(Key, u64)>)> {
        let mut by = vec![
            (Key::new(Kind::Server, server.id), server.version),
            (Key::new(Kind::Tool, tool_id(server.id, &tool.name)), version),
        ];
        let Some(id) = scope.agent() else {
            scope.person()?;
            return Ok((policy::decide(Caller::Person, server, tool), by));
        };
        // A deleted agent may do nothing.
        let Some((agent, version)) = self.find::<Agent>(scope.tenant(), Kind::Agent, id).await? else {
            return Ok((Verdict::Deny(Reason::NotSelected), by));
        };
        by.push((Key::new(Kind::Agent, id), version));
        Ok((policy::decide(Caller::Agent(&agent), server, tool), by))
    }

    /// Validates arguments against their size limit and the input schema of the tool.
    pub(super) fn check_arguments(&self, tool: &Tool, arguments: &Value) -> Result<(), String> {
        let size = arguments.to_string().len();
        if size > LARGEST {
            return Err(format!("the arguments have {size} bytes; the limit is {LARGEST} bytes"));
        }
        self.schemas.check(tool, arguments)
    }

    /// Enforces the limit of running calls per subject.
    fn check_room(&self, scope: Scope) -> Result<()> {
        let running = lock(&self.running);
        let own = running
            .iter()
            .filter(|((tenant, _), running)| *tenant == scope.tenant() && running.subject == scope.subject());
        if own.count() < MOST_AT_ONCE {
            return Ok(());
        }
        Err(too_many(MOST_AT_ONCE))
    }

    /// Rejects a call. The first rejection of its kind (subject, tool, reason and text) is stored without the
    /// arguments; repetitions within a minute are counted and refer to its record.
    async fn refuse(
        self: &Arc<Self>,
        scope: Scope,
        plan: Plan,
        status: Status,
        code: &'static str,
        text: &str,
    ) -> Result<CallView> {
        let (tenant, now) = (scope.tenant(), self.world.now());
        let text: String = text.chars().take(MAX_REASON_LEN).collect();
        self.meters.call_over(tenant, plan.server.slug.as_str(), status, SignedDuration::ZERO);
        let kind = self.about_tool(scope, "call.refused", &plan.server, &plan.tool).with("reason", code);
        let kind = Refusal::new(tenant, kind, Some(plan.id)).with_error(&text);
        let (kind, count) = self.denials.count(kind, now);
        let view = CallView {
            id: kind.call.unwrap_or(plan.id),
            arguments: None,
            error: Some(text.clone()),
            completed: Some(now),
            ..CallView::of(scope, &plan, status)
        };
        if let Some(count) = count {
            // The repetitions refer to this record: it is stored even if the client disconnects.
            let hub = self.clone();
            let stored = async move {
                hub.store_refused_call(scope, &plan, (status, text), &kind, (now, count)).await
            };
            self.detached(stored).await?;
        }
        Ok(view)
    }

    async fn store_refused_call(
        &self,
        scope: Scope,
        plan: &Plan,
        (status, text): (Status, String),
        kind: &Refusal,
        (now, count): (Timestamp, u64),
    ) -> Result<()> {
        let (mut entry, mut batch) = (kind.entry(now, count), Batch::new());
        if kind.call.is_some() {
            entry = plan.described(entry);
            let keeps = plan.server.settings.keep_history;
            let error = self.sealed_error(scope.tenant(), plan.id, status, keeps.then_some(text)).await;
            let call = Call { error, completed: Some(now), ..plan.call(scope, status, None, now) };
            batch = batch.change(Change::Open(Box::new(call))).tell(plan.told(status));
            batch.changes.extend(self.rules(plan));
        }
        self.denials.commit(&*self.store, kind, (now, count), batch.audit(entry)).await
    }

    /// Requests the approval of a user.
    async fn ask(&self, scope: Scope, plan: &Plan, reason: Reason) -> Result<()> {
        let now = self.world.now();
        let call = self.record(scope, plan, Status::Pending).await?;
        let approval = Approval {
            id: ApprovalId::new(&*self.world),
            call: plan.id,
            digest: plan.binding(scope),
            decision: Decision::Open,
            decided_by: None,
            created: now,
            expires: now.saturating_add(self.options.approval_lifetime).unwrap_or(Timestamp::MAX),
            decided: None,
        };
        let entry = self.about(scope, "approval.asked", plan).with("reason", reason.code());
        let entry =
            entry.with("approval", approval.id.to_string()).with("binding", approval.digest.to_string());
        let mut batch = Batch::new().audit(entry).tell(plan.told(Status::Pending));
        batch = batch.tell(event_payloads::approval(approval.id, plan.id, Decision::Open));
        let of = Room::Waiting(scope.subject().to_string());
        batch = batch.change(Change::Room { of, most: MOST_WAITING });
        batch = batch.change(Change::Open(Box::new(call))).change(Change::Ask(approval));
        batch.changes.extend(self.rules(plan));
        self.store.commit(scope.tenant(), batch).await
    }

    /// Creates the call record with its encrypted arguments.
    pub(super) async fn record(&self, scope: Scope, plan: &Plan, status: Status) -> Result<Call> {
        let now = self.world.now();
        // A pending call needs its arguments when it is approved, even if the server stores no history.
        let arguments = if plan.server.settings.keep_history || status == Status::Pending {
            Some(self.seal_arguments(scope.tenant(), plan).await?)
        } else {
            None
        };
        Ok(plan.call(scope, status, arguments, now))
    }

    /// Creates the audit entry of a call.
    pub(super) fn about(&self, scope: Scope, action: &'static str, plan: &Plan) -> Entry {
        plan.described(self.about_tool(scope, action, &plan.server, &plan.tool))
    }

    /// Creates the audit entry of a tool.
    pub(super) fn about_tool(
        &self,
        scope: Scope,
        action: &'static str,
        server: &Server,
        tool: &Tool,
    ) -> Entry {
        self.entry(scope, action).with("server", server.id.to_string()).with("tool", tool.name.as_str())
    }
}

/// Creates the error for a call whose outcome is unknown.
fn not_known(call: CallId) -> Error {
    let text = format!("the hub stopped while call {call} was running: its outcome is unknown");
    Error::new(error::Kind::Unavailable, "outcome_unknown", text)
}
