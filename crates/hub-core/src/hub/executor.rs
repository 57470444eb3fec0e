//! The call pipeline up to the decision: rate limit of the caller → which tool → policy → arguments → rate limit of the
//! server → approval. From there [`running`](super::running) goes on. Nothing else here calls a tool.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::denied::Refusal;
use super::history::CallView;
use super::repeats::Repeated as _;
use super::running::{Approved, Intent};
use super::sync::tool_id;
use super::tools::slug_in;
use super::{Hub, told};
use crate::agent::Agent;
use crate::audit::Entry;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::Told;
use crate::id::{ApprovalId, CallId};
use crate::limit::too_many;
use crate::policy::{self, Caller, Reason, Verdict};
use crate::scope::Scope;
use crate::server::Server;
use crate::spans;
use crate::store::{Approval, Batch, Call, Change, Decision, Key, Kind, Room, Status};
use crate::sync::lock;
use crate::tool::Tool;

/// The largest arguments, as JSON.
const LARGEST: usize = 4 << 20;
/// The longest reason that is stored of a refused call, in characters.
const MAX_REASON_LEN: usize = 2_000;
/// How many calls one subject may have under way, and waiting for a person.
const MOST_AT_ONCE: usize = 256;
const MOST_WAITING: u32 = 100;

/// Which tool is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By its name here.
    Local(String),
    /// By the server's name for it.
    Of {
        /// The server, by its id or short name.
        server: String,
        /// The tool.
        tool: String,
    },
}

impl Which {
    /// An audit entry with the names that the caller sent.
    fn named(&self, entry: Entry) -> Entry {
        match self {
            Which::Local(name) => entry.with("tool", name.as_str()),
            Which::Of { server, tool } => entry.with("server", server.as_str()).with("tool", tool.as_str()),
        }
    }

    /// The server that it names, by its id or slug.
    fn server(&self) -> Option<&str> {
        match self {
            Which::Local(name) => slug_in(name),
            Which::Of { server, .. } => Some(server),
        }
    }
}

/// A call that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The tool.
    pub tool: Which,
    /// Its arguments: an object.
    pub arguments: Value,
}

/// A call of which everything is known.
pub(super) struct Plan {
    pub(super) id: CallId,
    pub(super) server: Server,
    pub(super) tool: Tool,
    pub(super) arguments: Value,
    /// What was asked for, if a person has changed it.
    pub(super) asked: Option<Value>,
    pub(super) verdict: Verdict,
    /// What that was decided by.
    pub(super) by: Vec<(Key, u64)>,
}

impl Plan {
    /// The digest of the arguments.
    pub(super) fn digest(&self) -> Digest {
        Digest::of("linchpin arguments").json(&self.arguments).end()
    }

    /// An audit entry with what tells this call from others of the same tool.
    fn described(&self, entry: Entry) -> Entry {
        entry
            .with("call", self.id.to_string())
            .with("pin", crate::pin::pin(&self.tool.definition).to_string())
            .with("arguments", self.digest().to_string())
    }

    /// The record of the call before it starts.
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

    /// What those who watch are told of it.
    pub(super) fn told(&self, status: Status) -> Told {
        told::call(self.id, self.server.id, &self.tool.name, status)
    }

    /// What an approval of it is bound to.
    pub(super) fn binding(&self, scope: Scope) -> Digest {
        policy::binding(scope.subject(), self.server.id, &self.tool.definition, &self.arguments)
    }
}

impl Hub {
    /// Calls a tool. Whatever comes of it is a record, which is what this gives: also when the rules, or a person, said
    /// no. If a person must be asked this waits for them, unless told not to.
    pub async fn call_tool(self: &Arc<Self>, scope: Scope, wanted: Wanted, wait: bool) -> Result<CallView> {
        let call = self.begin_call(scope, wanted, wait).await?;
        if wait && !call.status.is_final() { self.wait(scope, call.id).await } else { Ok(call) }
    }

    /// As [`Self::call_tool`], without waiting for a person.
    pub async fn begin_call(self: &Arc<Self>, scope: Scope, wanted: Wanted, wait: bool) -> Result<CallView> {
        let again = self.store.shared().map(|_| wanted.clone());
        let server = wanted.tool.server().map(str::to_owned);
        match (self.try_call(scope, wanted, wait, true).await, again) {
            // Another hub has just changed what the rules go by: once more, by that.
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
            return Err(Error::invalid("arguments", "they are an object"));
        }
        if is_first {
            // Before anything is looked up: whether there is such a tool makes no difference.
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

    /// Makes a call, whoever may leave meanwhile. It is certain then that it is made; what comes of it is told later.
    pub(super) async fn make(
        self: &Arc<Self>,
        scope: Scope,
        plan: Plan,
        approved: Option<Approved>,
        reason: &'static str,
    ) -> Result<oneshot::Receiver<CallView>> {
        let ((begun, has_begun), (done, is_done)) = (oneshot::channel(), oneshot::channel());
        let span = tracing::trace_span!(
            target: spans::TARGET,
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

    /// Finds out which tool is meant, and what the rules say.
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

    /// Where several hubs share a store, what another one has changed counts at once.
    pub(super) fn rules(&self, plan: &Plan) -> Option<Change> {
        self.store.shared().map(|_| Change::Same(plan.by.clone()))
    }

    /// What the rules say now, and by which documents.
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
        // An agent that is gone may do nothing.
        let Some((agent, version)) = self.find::<Agent>(scope.tenant(), Kind::Agent, id).await? else {
            return Ok((Verdict::Deny(Reason::NotSelected), by));
        };
        by.push((Key::new(Kind::Agent, id), version));
        Ok((policy::decide(Caller::Agent(&agent), server, tool), by))
    }

    /// Whether the arguments are what the tool takes.
    pub(super) fn check_arguments(&self, tool: &Tool, arguments: &Value) -> Result<(), String> {
        let size = arguments.to_string().len();
        if size > LARGEST {
            return Err(format!("the arguments have {size} bytes, and {LARGEST} are taken at most"));
        }
        self.schemas.check(tool, arguments)
    }

    /// Nobody has more under way at once than this.
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

    /// Refuses a call. The first refusal of its kind (subject, tool, reason and text) is stored, without the arguments; those that
    /// follow within a minute are counted, and refer to its record.
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

    /// Asks a person.
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
        batch = batch.tell(told::approval(approval.id, plan.id, Decision::Open));
        let of = Room::Waiting(scope.subject().to_string());
        batch = batch.change(Change::Room { of, most: MOST_WAITING });
        batch = batch.change(Change::Open(Box::new(call))).change(Change::Ask(approval));
        batch.changes.extend(self.rules(plan));
        self.store.commit(scope.tenant(), batch).await
    }

    /// A call as it is kept.
    pub(super) async fn record(&self, scope: Scope, plan: &Plan, status: Status) -> Result<Call> {
        let now = self.world.now();
        // What waits must be known when it is made, kept or not.
        let arguments = if plan.server.settings.keep_history || status == Status::Pending {
            Some(self.seal_arguments(scope.tenant(), plan).await?)
        } else {
            None
        };
        Ok(plan.call(scope, status, arguments, now))
    }

    /// What the audit says of a call.
    pub(super) fn about(&self, scope: Scope, action: &'static str, plan: &Plan) -> Entry {
        plan.described(self.about_tool(scope, action, &plan.server, &plan.tool))
    }

    /// What the audit says of a tool.
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

/// Nobody can say what became of a call.
fn not_known(call: CallId) -> Error {
    let text = format!("the hub ended while the call {call} was under way: it may have been done or not");
    Error::new(error::Kind::Unavailable, "outcome_unknown", text)
}
