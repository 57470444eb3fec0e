//! Agents.

use std::collections::BTreeMap;

use axum::response::Response;
use linchpin_hub_core::agent::{ApprovalMode, Selection};
use linchpin_hub_core::hub::agents::AgentFilter;
use schemars::JsonSchema;

use crate::answer::{created, done, json};
use crate::asked::Asked;
use crate::problem::Result;
use crate::query::Parameter;
use crate::route::API;

pub(crate) const FILTERS: [Parameter; 3] = [
    Parameter::text("name", "Those with this in their name"),
    Parameter::flag("enabled", "Those that may do something, or not"),
    Parameter::text("server", "Those that may use this server, by its id"),
];

/// Everything that may be said of an agent and need not be.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
struct More {
    /// What it is told before anything else.
    #[schemars(length(max = 100_000))]
    instructions: Option<String>,
    /// The model that it uses, if the hub runs it.
    #[schemars(length(max = 200))]
    model: Option<String>,
    /// When a person is asked; `always-ask` is the usual.
    approval: Option<ApprovalMode>,
    /// Whether it may do anything.
    enabled: Option<bool>,
    /// How many calls a minute it may make; as many as there are without it.
    #[schemars(range(min = 1, max = 100_000))]
    calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once.
    #[schemars(range(min = 1, max = 1_000))]
    calls_at_once: Option<u32>,
    /// The servers that it may use, by their ids or slugs, and what of each.
    servers: Option<BTreeMap<String, Selection>>,
}

/// An agent that is to be added.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
pub(crate) struct NewAgent {
    /// What people call it.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    #[serde(flatten)]
    more: More,
}

/// What is to change of an agent: only what is given.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
pub(crate) struct AgentChanges {
    /// What people call it.
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
