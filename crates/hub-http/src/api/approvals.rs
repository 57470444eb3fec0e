//! REST endpoints of approvals: list, approve and deny.

use axum::response::Response;
use linchpin_hub_core::approval_rule::ArgumentCondition;
use linchpin_hub_core::store::ApprovalStatus;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::json;

/// Names of all approval statuses, which the `decision` filter of the list accepts.
const DECISIONS: [&str; ApprovalStatus::ALL.len()] = {
    let (mut names, mut index) = ([""; ApprovalStatus::ALL.len()], 0);
    while index < names.len() {
        names[index] = ApprovalStatus::ALL[index].name();
        index += 1;
    }
    names
};
pub(crate) const FILTERS: [Parameter; 1] =
    [Parameter::one_of("decision", "Return only approvals with this status", &DECISIONS)];

/// Request body that approves a call, optionally with other arguments, and later calls as well.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ApproveRequest {
    /// Arguments that replace the requested ones.
    arguments: Option<Map<String, Value>>,
    /// Approval rule to create, so that later calls of the agent need no approval. Default: only this call is approved.
    rule: Option<RuleOfApproval>,
}

/// Limits of an approval rule for later calls of the same agent and tool. At least one of them must be set.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
struct RuleOfApproval {
    /// Whether the rule is limited to the session of the call. It ends after seven days at the latest.
    session: Option<bool>,
    /// Validity of the rule in minutes.
    #[schemars(range(min = 1, max = 10_080))]
    minutes: Option<u32>,
    /// Conditions on the arguments, all of which must hold for this call, too.
    #[schemars(length(max = 8))]
    conditions: Option<Vec<ArgumentCondition>>,
}

/// Request body that denies a call, with the reason for the caller.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct DenyRequest {
    /// Reason for the denial, shown to the caller of the tool.
    #[schemars(length(max = 1_000))]
    reason: Option<String>,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let (decision, paging) = (request.query.parsed("decision"), request.query.paging());
    json(&request.hub().calls().approvals(request.actor()?, decision, &paging).await?)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().calls().approval(request.actor()?, request.path("approval").parse()?).await?)
}

pub(crate) async fn approve(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let (arguments, rule) = (form.value("arguments"), form.object("rule")?);
    form.finish()?;
    let (actor, id) = (request.actor()?, request.path("approval").parse()?);
    json(&request.hub().calls().approve_with_rule(actor, id, arguments, rule).await?)
}

pub(crate) async fn deny(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let reason = form.string("reason", 1_000)?;
    form.finish()?;
    json(
        &request
            .hub()
            .calls()
            .deny(request.actor()?, request.path("approval").parse()?, reason.as_deref())
            .await?,
    )
}
