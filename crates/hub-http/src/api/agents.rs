//! Agents.

use std::collections::BTreeMap;

use axum::response::Response;
use linchpin_hub_core::agent::{ApprovalMode, Selection};
use linchpin_hub_core::hub::agents::AgentFilter;
use schemars::JsonSchema;

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::Asked;
use crate::response::{created, done, json};
use crate::route::API;

pub(crate) const FILTERS: [Parameter; 3] = [
    Parameter::text("name", "Filter by part of the name"),
    Parameter::flag("enabled", "Filter by enabled or disabled"),
    Parameter::text("server", "Filter by a server that the agent may use (id)"),
];

/// Optional fields of an agent.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
struct More {
    /// System instructions.
    #[schemars(length(max = 100_000))]
    instructions: Option<String>,
    /// Model that the agent uses, if the hub runs it.
    #[schemars(length(max = 200))]
    model: Option<String>,
    /// Approval mode. Default: `always-ask`.
    approval: Option<ApprovalMode>,
    /// Whether the agent is enabled. Default: true.
    enabled: Option<bool>,
    /// Rate limit in calls per minute. Default: no limit.
    #[schemars(range(min = 1, max = 100_000))]
    calls_per_minute: Option<u32>,
    /// Maximum number of concurrent calls. Default: no limit.
    #[schemars(range(min = 1, max = 1_000))]
    calls_at_once: Option<u32>,
    /// Servers that the agent may use, by id or slug, with the selected tools of each.
    servers: Option<BTreeMap<String, Selection>>,
}

/// Request to add an agent.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct NewAgent {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    #[serde(flatten)]
    more: More,
}

/// Changes of an agent. Omitted fields stay unchanged.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct AgentChanges {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: Option<String>,
    #[serde(flatten)]
    more: More,
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let filter = AgentFilter {
        name: asked.query.text("name").map(str::to_owned),
        enabled: asked.query.flag("enabled"),
        server: asked.query.text("server").map(str::parse).transpose()?,
    };
    json(&asked.hub().agents(asked.scope()?, &filter, &asked.query.paging()).await?)
}

pub(crate) async fn add(mut asked: Asked) -> Result<Response> {
    let form = asked.body.take();
    let agent = asked.hub().add_agent(asked.scope()?, form).await?;
    created(&format!("{API}/agents/{}", agent.summary.id), &agent)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().agent(asked.scope()?, asked.path("agent").parse()?).await?)
}

pub(crate) async fn change(mut asked: Asked) -> Result<Response> {
    let changes = asked.body.take();
    json(&asked.hub().update_agent(asked.scope()?, asked.path("agent").parse()?, changes).await?)
}

pub(crate) async fn remove(asked: Asked) -> Result<Response> {
    asked.hub().remove_agent(asked.scope()?, asked.path("agent").parse()?).await?;
    Ok(done())
}
