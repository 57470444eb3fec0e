//! REST endpoints of approval rules: list, add, get and revoke.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::approval_rule::{ArgumentCondition, MAX_SESSION_LEN, RuleScope};
use linchpin_hub_core::hub::{ApprovalRuleFilter, NewApprovalRule};
use schemars::JsonSchema;

use super::calls::{server_filter, take_tool};
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{created, json, no_content};
use crate::route::API;

pub(crate) const FILTERS: [Parameter; 2] = [
    Parameter::text("agent", "Return only rules of this agent (id)"),
    Parameter::text("server", "Return only rules for tools of this server (id or slug)"),
];

/// Request body that adds an approval rule. It has at least one of `session`, `minutes` and `conditions`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewRule {
    /// Id of the agent whose calls the rule approves.
    agent: String,
    /// Qualified name of the tool, such as `mcp_demo__add`. Replaces `server` and `name`.
    tool: Option<String>,
    /// Id or slug of the server that has the tool, together with `name`. Replaces `tool`.
    server: Option<String>,
    /// Upstream name of the tool, together with `server`.
    name: Option<String>,
    /// Session to which the rule is limited: the `session` of the calls. The rule ends after seven days at the latest.
    #[schemars(length(min = 1, max = 256))]
    session: Option<String>,
    /// Validity of the rule in minutes.
    #[schemars(range(min = 1, max = 10_080))]
    minutes: Option<u32>,
    /// Conditions on the arguments, all of which must hold.
    #[schemars(length(max = 8))]
    conditions: Option<Vec<ArgumentCondition>>,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let filter = ApprovalRuleFilter {
        agent: request.query.text("agent").map(str::parse).transpose()?,
        server: server_filter(&request).await?,
    };
    json(&request.hub().calls().approval_rules(request.actor()?, &filter, &request.query.paging()).await?)
}

pub(crate) async fn add(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("agent", "must be set: the id of an agent");
    let agent = form.string("agent", 64)?.ok_or_else(missing)?;
    let tool = take_tool(&mut form)?;
    let (session, scope) = (form.string("session", MAX_SESSION_LEN)?, RuleScope::read(&mut form)?);
    form.finish()?;
    let unknown = |_| Error::invalid("agent", "unknown agent: use the id of an agent");
    let rule = NewApprovalRule { agent: agent.parse().map_err(unknown)?, tool, session, scope };
    let rule = request.hub().calls().add_approval_rule(request.actor()?, rule).await?;
    created(&format!("{API}/approval-rules/{}", rule.id), &rule)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().calls().approval_rule(request.actor()?, request.path("rule").parse()?).await?)
}

pub(crate) async fn revoke(request: ApiRequest) -> Result<Response> {
    request.hub().calls().revoke_approval_rule(request.actor()?, request.path("rule").parse()?).await?;
    Ok(no_content())
}
