//! Rate limits (calls, resource reads, lists and prompts per minute) and concurrency limits, per server and per agent.
//! The token buckets are in the store, so that hubs on one store share them.

use super::Hub;
use super::calls::admit::PlannedCall;
use crate::actor::Actor;
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::rate_limit::RateLimit;
use crate::server::Server;
use crate::store::{Batch, CountedCalls, StoreChange};

impl Hub {
    /// Consumes one call from the rate limit of an agent. This happens before any lookup or decision, so that rejected
    /// calls count as well. Users have no such limit. `limited` is the audit entry of a call over the limit.
    pub(super) async fn consume_rate_limit(
        &self,
        actor: Actor,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        let Some(id) = actor.agent() else { return Ok(()) };
        let Some(snapshot) = self.agent_snapshot(actor.tenant(), id).await? else { return Ok(()) };
        let agent = &snapshot.agent;
        let Some(per_minute) = agent.calls_per_minute else { return Ok(()) };
        let text = format!("the agent `{}` is limited to {per_minute} calls per minute", agent.name);
        self.consume_bucket(actor, actor.subject().to_string(), per_minute, text, limited).await
    }

    /// Consumes one call from the rate limit of a server, for a call that is allowed.
    pub(super) async fn consume_server_rate_limit(
        &self,
        actor: Actor,
        server: &Server,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        let Some(per_minute) = server.settings.calls_per_minute else { return Ok(()) };
        let text =
            format!("the server `{}` is limited to {per_minute} calls per minute", server.slug.as_str());
        self.consume_bucket(actor, server.id.to_string(), per_minute, text, limited).await
    }

    async fn consume_bucket(
        &self,
        actor: Actor,
        bucket: String,
        per_minute: u32,
        text: String,
        limited: impl FnOnce() -> AuditEntry,
    ) -> Result<()> {
        let rate = RateLimit { burst: per_minute, per_minute };
        let take = StoreChange::ConsumeRate { bucket, rate, at: self.platform.now() };
        let result = self.store.commit(actor.tenant(), Batch::new().change(take)).await;
        let Err(error) = result else { return Ok(()) };
        let Some(wait) = error.retry_after() else { return Err(error) };
        self.audit_rejection(actor.tenant(), limited()).await;
        let text = format!("{text}: try again in {} s", error::ceil_seconds(wait));
        Err(Error::new(error::ErrorKind::LimitExceeded, "rate_limited", text).with_retry_after(wait))
    }
}

/// Returns the concurrency limits of server and agent that the start of another call must meet.
pub(super) fn concurrency_limits(actor: Actor, plan: &PlannedCall) -> Vec<StoreChange> {
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
