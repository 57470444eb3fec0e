//! API tokens of users and agents.

use axum::response::Response;
use http::StatusCode;
use linchpin_hub_core::hub::tokens::TokenView;
use linchpin_hub_core::{Error, Subject};
use schemars::JsonSchema;
use serde::Serialize;

use crate::paging::cut;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::Asked;
use crate::response::{done, json, json_with};

pub(crate) const OWNERS: [Parameter; 1] = [Parameter::one_of(
    "owner",
    "`own`: tokens of the user; `all`: tokens of all agents, too. Default: `own`",
    &["own", "all"],
)];

/// Request to issue a token.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewToken {
    /// Purpose of the token.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// Validity in days. Default: 90.
    #[schemars(range(min = 1, max = 3_650))]
    days: Option<u32>,
}

/// Issued token.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssuedToken {
    /// The token itself. It is shown only once.
    token: String,
    #[serde(flatten)]
    view: TokenView,
}

/// Returns the owner of the tokens: the agent in the path, or the caller.
fn owner(asked: &Asked) -> Result<Subject> {
    match asked.path("agent") {
        "" => Ok(asked.scope()?.subject()),
        agent => Ok(Subject::Agent(agent.parse()?)),
    }
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let tokens = match asked.query.text("owner") {
        Some("all") => asked.hub().all_tokens(asked.scope()?).await?,
        _ => asked.hub().tokens(asked.scope()?, owner(&asked)?).await?,
    };
    json(&cut(tokens, &asked.query.paging(), |token| token.id.to_string()))
}

pub(crate) async fn issue(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let missing = || Error::invalid("name", "must be set: describe the purpose of the token");
    let name = form.text("name", 100)?.ok_or_else(missing)?;
    let days = form.number("days", 1..=3_650)?.and_then(|days| u32::try_from(days).ok());
    form.end()?;
    let (token, view) = asked.hub().issue_token(asked.scope()?, owner(&asked)?, &name, days).await?;
    json_with(StatusCode::CREATED, &IssuedToken { token: token.expose().to_owned(), view })
}

pub(crate) async fn revoke(asked: Asked) -> Result<Response> {
    asked.hub().revoke_token(asked.scope()?, owner(&asked)?, asked.path("token").parse()?).await?;
    Ok(done())
}
