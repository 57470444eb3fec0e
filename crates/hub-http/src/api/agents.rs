//! REST endpoints of agents: list, add, get, update and remove.

use std::collections::BTreeMap;

use axum::response::Response;
use linchpin_hub_core::agent::{ApprovalMode, ServerAccess};
use linchpin_hub_core::hub::agents::AgentFilter;
use schemars::JsonSchema;

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{created, json, no_content};
use crate::route::API;

pub(crate) const FILTERS: [Parameter; 3] = [
    Parameter::text("name", "Return only agents whose name contains this text"),
    Parameter::flag("enabled", "Return only enabled (true) or only disabled (false) agents"),
    Parameter::text("server", "Return only agents that may use this server (id)"),
];

/// Optional fields of a request body that adds or changes an agent.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
struct AgentFields {
    /// System instructions for the model of the agent.
    #[schemars(length(max = 100_000))]
    instructions: Option<String>,
    /// Name of the model, stored for information; the hub calls no model.
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
    max_concurrent_calls: Option<u32>,
    /// Whether the client of the agent may ask its own user to approve a call, by elicitation. Otherwise calls are approved
    /// only in the hub. Default: true.
    client_approvals: Option<bool>,
    /// Servers that the agent may use, by id or slug, with the selected tools of each.
    servers: Option<BTreeMap<String, ServerAccess>>,
}

/// Request body that adds an agent.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct NewAgent {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    #[serde(flatten)]
    fields: AgentFields,
}

/// Request body that changes an agent. Omitted fields stay unchanged.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct AgentChanges {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: Option<String>,
    #[serde(flatten)]
    fields: AgentFields,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let filter = AgentFilter {
        name: request.query.text("name").map(str::to_owned),
        enabled: request.query.flag("enabled"),
        server: request.query.text("server").map(str::parse).transpose()?,
    };
    json(&request.hub().identity().agents(request.actor()?, &filter, &request.query.paging()).await?)
}

pub(crate) async fn add(mut request: ApiRequest) -> Result<Response> {
    let form = request.body.take();
    let agent = request.hub().identity().add_agent(request.actor()?, form).await?;
    created(&format!("{API}/agents/{}", agent.summary.id), &agent)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().identity().agent(request.actor()?, request.path("agent").parse()?).await?)
}

pub(crate) async fn update(mut request: ApiRequest) -> Result<Response> {
    let changes = request.body.take();
    json(
        &request
            .hub()
            .identity()
            .update_agent(request.actor()?, request.path("agent").parse()?, changes)
            .await?,
    )
}

pub(crate) async fn remove(request: ApiRequest) -> Result<Response> {
    request.hub().identity().remove_agent(request.actor()?, request.path("agent").parse()?).await?;
    Ok(no_content())
}
