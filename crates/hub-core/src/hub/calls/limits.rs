//! Rate limits (calls, resource reads, lists and prompts per minute) and concurrency limits, per server and per agent.
//! The token buckets are in the store, so that hubs on one store share them.

use jiff::Timestamp;

use super::plan::PlannedCall;
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::calls::Calls;
use crate::rate_limit::RateLimit;
use crate::server::Server;
use crate::store::{Batch, CountedCalls, StoreChange};

/// Rate limits that a call has consumed already, so that a second attempt to admit it does not consume them again.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::hub) struct ConsumedLimits {
    pub(in crate::hub) agent: bool,
    pub(in crate::hub) server: bool,
}

/// Rate limit of an agent or server.
pub(in crate::hub) struct CallRate {
    /// Name of the token bucket in the store.
    bucket: String,
    per_minute: u32,
    /// Agent or server with its name, for the error.
    owner: String,
}

impl CallRate {
    /// Returns the rate limit of an agent. Users have none.
    pub(in crate::hub) fn of_agent(agent: &Agent) -> Option<Self> {
        let owner = || format!("the agent `{}`", agent.name);
        let bucket = || Subject::Agent(agent.id).to_string();
        agent.calls_per_minute.map(|per_minute| CallRate { bucket: bucket(), per_minute, owner: owner() })
    }

    /// Returns the rate limit of a server.
    pub(in crate::hub) fn of_server(server: &Server) -> Option<Self> {
        let owner = || format!("the server `{}`", server.slug.as_str());
        let bucket = || server.id.to_string();
        let per_minute = server.settings.calls_per_minute;
        per_minute.map(|per_minute| CallRate { bucket: bucket(), per_minute, owner: owner() })
    }

    /// Returns the change that consumes one call.
    pub(in crate::hub) fn consume(&self, at: Timestamp) -> StoreChange {
        let rate = RateLimit { burst: self.per_minute, per_minute: self.per_minute };
        StoreChange::ConsumeRate { bucket: self.bucket.clone(), rate, at }
    }

    /// Returns the error for the caller if this rate limit made a commit fail.
    pub(in crate::hub) fn explain(&self, error: &Error) -> Option<Error> {
        let wait = error.retry_after().filter(|_| error.field() == Some(&self.bucket))?;
        let text = format!(
            "{} is limited to {} calls per minute: try again in {} s",
            self.owner,
            self.per_minute,
            error::ceil_seconds(wait)
        );
        Some(Error::new(error::ErrorKind::LimitExceeded, "rate_limited", text).with_retry_after(wait))
    }
}

impl Calls {
    /// Consumes one call from the rate limit of an agent. This happens before any lookup or decision, so that rejected
    /// calls count as well. Users have no such limit. `limited` is the audit entry of a call over the limit.
    pub(in crate::hub) async fn consume_rate_limit(
        &self,
        actor: Actor,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        let Some(id) = actor.agent() else { return Ok(()) };
        let snapshot = self.identity.agent_snapshot(actor.tenant(), id).await?;
        let rate = snapshot.and_then(|snapshot| CallRate::of_agent(&snapshot.agent));
        self.consume_rate(actor, rate, limited).await
    }

    /// Consumes one call from the rate limit of a server, for a call that is allowed.
    pub(in crate::hub) async fn consume_server_rate_limit(
        &self,
        actor: Actor,
        server: &Server,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        self.consume_rate(actor, CallRate::of_server(server), limited).await
    }

    async fn consume_rate(
        &self,
        actor: Actor,
        rate: Option<CallRate>,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        let Some(rate) = rate else { return Ok(()) };
        let batch = Batch::new().change(rate.consume(self.context.platform.now()));
        let Err(error) = self.context.store.commit(actor.tenant(), batch).await else { return Ok(()) };
        let Some(explained) = rate.explain(&error) else { return Err(error) };
        self.audit.audit_rejection(actor.tenant(), limited()).await;
        Err(explained)
    }
}

/// Returns the concurrency limits of server and agent that the start of another call must meet.
pub(in crate::hub) fn concurrency_limits(actor: Actor, plan: &PlannedCall) -> Vec<StoreChange> {
    let server = &plan.target.server;
    let agent_limit = plan.agent.as_ref().and_then(|snapshot| snapshot.agent.max_concurrent_calls);
    let server_limit = server.settings.max_concurrent_calls.map(|max| (CountedCalls::Server(server.id), max));
    let agent_limit = agent_limit.map(|max| (CountedCalls::Subject(actor.subject().to_string()), max));
    [server_limit, agent_limit]
        .into_iter()
        .flatten()
        .map(|(scope, max_calls)| StoreChange::RequireConcurrency { scope, max_calls })
        .collect()
}
