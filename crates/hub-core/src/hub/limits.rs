//! How often servers are asked for something (tools, resources and prompts alike), and how many calls of tools are under way
//! at once: of a server, and of an agent. What is left is kept in the store: hubs that share one share it.

use super::Hub;
use crate::agent::Agent;
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::limit::Rate;
use crate::scope::Scope;
use crate::server::Server;
use crate::store::{Batch, Change, Kind, Room};

impl Hub {
    /// One request less for a server, and for an agent, in this minute. The audit says what was too much.
    pub(super) async fn take_turn(
        &self,
        scope: Scope,
        server: &Server,
        limited: impl FnOnce() -> Entry,
    ) -> Result<()> {
        let (at, agent) = (self.world.now(), self.agent_of(scope).await?);
        let of_agent = agent.as_ref().and_then(|agent| agent.calls_per_minute);
        let limits = [
            (server.id.to_string(), server.settings.calls_per_minute, server.slug.as_str(), "takes"),
            (
                scope.subject().to_string(),
                of_agent,
                agent.as_ref().map_or("", |agent| &agent.name),
                "may make",
            ),
        ];
        let mut batch = Batch::new();
        for (of, per_minute, ..) in &limits {
            let Some(per_minute) = *per_minute else { continue };
            let (of, rate) = (of.clone(), Rate { burst: per_minute, per_minute });
            batch = batch.change(Change::Take { of, rate, at });
        }
        if batch.changes.is_empty() {
            return Ok(());
        }
        let Err(error) = self.store.commit(scope.tenant(), batch).await else { return Ok(()) };
        let of = limits.iter().find(|(of, ..)| error.field() == Some(of));
        let (Some((_, Some(per_minute), name, verb)), Some(wait)) = (of, error.retry_after()) else {
            return Err(error);
        };
        self.store.commit(scope.tenant(), Batch::new().audit(limited())).await?;
        let text =
            format!("`{name}` {verb} {per_minute} calls a minute: try again in {} s", error::seconds(wait));
        Err(Error::new(error::Kind::Exhausted, "rate_limited", text).after(wait))
    }

    /// How many calls may be under way when another begins.
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
