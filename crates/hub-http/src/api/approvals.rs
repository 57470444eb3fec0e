//! Approvals.

use axum::response::Response;
use linchpin_hub_core::store::Decision;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::Asked;
use crate::response::json;

/// Names of all approval statuses.
const DECISIONS: [&str; Decision::ALL.len()] = {
    let (mut names, mut index) = ([""; Decision::ALL.len()], 0);
    while index < names.len() {
        names[index] = Decision::ALL[index].name();
        index += 1;
    }
    names
};
pub(crate) const FILTERS: [Parameter; 1] = [Parameter::one_of("decision", "Filter by decision", &DECISIONS)];

/// Request to approve a call.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct Approve {
    /// Arguments that replace the requested ones.
    arguments: Option<Map<String, Value>>,
}

/// Request to deny a call.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct Deny {
    /// Reason, shown to the caller.
    #[schemars(length(max = 1_000))]
    reason: Option<String>,
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let (decision, paging) = (asked.query.one("decision"), asked.query.paging());
    json(&asked.hub().approvals(asked.scope()?, decision, &paging).await?)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().approval(asked.scope()?, asked.path("approval").parse()?).await?)
}

pub(crate) async fn approve(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let arguments = form.value("arguments");
    form.end()?;
    json(&asked.hub().approve(asked.scope()?, asked.path("approval").parse()?, arguments).await?)
}

pub(crate) async fn deny(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let reason = form.text("reason", 1_000)?;
    form.end()?;
    json(&asked.hub().deny(asked.scope()?, asked.path("approval").parse()?, reason.as_deref()).await?)
}
