//! REST endpoints of approvals: list, approve and deny.

use axum::response::Response;
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

/// Request body that approves a call, if wanted with other arguments.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ApproveRequest {
    /// Arguments that replace the requested ones.
    arguments: Option<Map<String, Value>>,
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
    let arguments = form.value("arguments");
    form.finish()?;
    json(
        &request
            .hub()
            .calls()
            .approve(request.actor()?, request.path("approval").parse()?, arguments)
            .await?,
    )
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
