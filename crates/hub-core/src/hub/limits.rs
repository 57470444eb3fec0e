//! Rate limits (calls, resource reads, lists and prompts per minute) and concurrency limits, per server and per agent.
//! The token buckets are in the store, so that hubs on one store share them.

use super::Hub;
use crate::actor::Scope;
use crate::agent::Agent;
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::rate_limit::Rate;
use crate::server::Server;
use crate::store::{Batch, Change, Kind, Room};

impl Hub {
    /// Consumes one call from the rate limit of an agent. This happens before any lookup or decision, so that rejected
    /// calls count as well. Users have no such limit. `limited` is the audit entry of a call over the limit.
    pub(super) async fn take_turn(&self, scope: Scope, limited: impl FnOnce() -> Entry) -> Result<()> {
        let Some(agent) = self.agent_of(scope).await? else { return Ok(()) };
        let Some(per_minute) = agent.calls_per_minute else { return Ok(()) };
        let text = format!("`{}` is limited to {per_minute} calls per minute", agent.name);
        self.take(scope, scope.subject().to_string(), per_minute, text, limited).await
    }

    /// Consumes one call from the rate limit of a server, for a call that is allowed.
    pub(super) async fn take_turn_at(
        &self,
        scope: Scope,
        server: &Server,
        limited: impl FnOnce() -> Entry,
    ) -> Result<()> {
        let Some(per_minute) = server.settings.calls_per_minute else { return Ok(()) };
        let text = format!("`{}` is limited to {per_minute} calls per minute", server.slug.as_str());
        self.take(scope, server.id.to_string(), per_minute, text, limited).await
    }

    async fn take(
        &self,
        scope: Scope,
        of: String,
        per_minute: u32,
        text: String,
        limited: impl FnOnce() -> Entry,
    ) -> Result<()> {
        let rate = Rate { burst: per_minute, per_minute };
        let take = Change::Take { of, rate, at: self.world.now() };
        let taken = self.store.commit(scope.tenant(), Batch::new().change(take)).await;
        let Err(error) = taken else { return Ok(()) };
        let Some(wait) = error.retry_after() else { return Err(error) };
        self.audit_refusal(scope.tenant(), limited()).await;
        let text = format!("{text}: try again in {} s", error::seconds(wait));
        Err(Error::new(error::Kind::Exhausted, "rate_limited", text).after(wait))
    }

    /// Returns the concurrency limits that the start of another call must meet.
    pub(super) async fn room(&self, scope: Scope, server: &Server) -> Result<Vec<Change>> {
        let agent = self.agent_of(scope).await?.and_then(|agent| agent.calls_at_once);
        let of_server = server.settings.calls_at_once.map(|most| (Room::Server(server.id), most));
        let of_agent = agent.map(|most| (Room::Subject(scope.subject().to_string()), most));
        Ok([of_server, of_agent].into_iter().flatten().map(|(of, most)| Change::Room { of, most }).collect())
    }

    async fn agent_of(&self, scope: Scope) -> Result<Option<Agent>> {
        let Some(agent) = scope.agent() else { return Ok(None) };
        Ok(self.find::<Agent>(scope.tenant(), Kind::Agent, agent).await?.map(|(agent, _)| agent))
    }
}
