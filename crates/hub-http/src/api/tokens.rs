//! REST endpoints of API tokens: list, issue and revoke.

use axum::response::Response;
use http::StatusCode;
use linchpin_hub_core::hub::tokens::TokenView;
use linchpin_hub_core::{Error, Subject};
use schemars::JsonSchema;
use serde::Serialize;

use crate::paging::page_by_key;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{json, json_with_status, no_content};

pub(crate) const OWNERS: [Parameter; 1] = [Parameter::one_of(
    "owner",
    "Owners of the tokens: `own` (the calling user) or `all` (the calling user and all agents). Default: `own`",
    &["own", "all"],
)];

/// Request body that issues an API token.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewToken {
    /// Purpose of the token, shown in the list of tokens.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// Validity of the token in days. Default: 90.
    #[schemars(range(min = 1, max = 3_650))]
    days: Option<u32>,
}

/// Response to the creation of an API token: the token itself, shown only once.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssuedToken {
    /// API token as text. It is shown only once.
    token: String,
    #[serde(flatten)]
    view: TokenView,
}

/// Returns the owner of the tokens: the agent in the path, or the caller.
fn owner(request: &ApiRequest) -> Result<Subject> {
    match request.path("agent") {
        "" => Ok(request.actor()?.subject()),
        agent => Ok(Subject::Agent(agent.parse()?)),
    }
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let tokens = match request.query.text("owner") {
        Some("all") => request.hub().identity().all_tokens(request.actor()?).await?,
        _ => request.hub().identity().tokens(request.actor()?, owner(&request)?).await?,
    };
    json(&page_by_key(tokens, &request.query.paging(), |token| token.id.to_string()))
}

pub(crate) async fn issue(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("name", "must be set: describe the purpose of the token");
    let name = form.string("name", 100)?.ok_or_else(missing)?;
    let days = form.number("days", 1..=3_650)?.and_then(|days| u32::try_from(days).ok());
    form.finish()?;
    let (token, view) =
        request.hub().identity().issue_token(request.actor()?, owner(&request)?, &name, days).await?;
    json_with_status(StatusCode::CREATED, &IssuedToken { token: token.expose().to_owned(), view })
}

pub(crate) async fn revoke(request: ApiRequest) -> Result<Response> {
    request
        .hub()
        .identity()
        .revoke_token(request.actor()?, owner(&request)?, request.path("token").parse()?)
        .await?;
    Ok(no_content())
}
