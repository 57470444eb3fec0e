//! Credentials of servers and environment secrets of stdio servers: stored and deleted, never returned.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::id::AgentId;
use schemars::JsonSchema;

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::Asked;
use crate::response::{done, json};

pub(crate) const WHOSE: [Parameter; 1] =
    [Parameter::text("agent", "Agent id. Default: the shared credential")];

/// Request to store a credential.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewCredential {
    /// Token, key or password.
    #[schemars(length(min = 1, max = 16_384))]
    secret: String,
}

/// Request to store an environment secret.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewSecret {
    /// Value of the environment variable.
    #[schemars(length(min = 1, max = 32_768))]
    secret: String,
}

pub(super) fn agent(asked: &Asked) -> Result<Option<AgentId>> {
    Ok(asked.query.text("agent").map(str::parse).transpose()?)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().credential(asked.scope()?, asked.path("server"), agent(&asked)?).await?)
}

pub(crate) async fn set(mut asked: Asked) -> Result<Response> {
    let secret = secret(&mut asked, 16_384)?;
    let agent = agent(&asked)?;
    json(&asked.hub().set_credential(asked.scope()?, asked.path("server"), agent, &secret).await?)
}

pub(crate) async fn remove(asked: Asked) -> Result<Response> {
    asked.hub().drop_credential(asked.scope()?, asked.path("server"), agent(&asked)?).await?;
    Ok(done())
}

pub(crate) async fn set_variable(mut asked: Asked) -> Result<Response> {
    let secret = secret(&mut asked, 32_768)?;
    let (server, variable) = (asked.path("server"), asked.path("variable"));
    json(&asked.hub().set_secret(asked.scope()?, server, variable, &secret).await?)
}

pub(crate) async fn remove_variable(asked: Asked) -> Result<Response> {
    asked.hub().drop_secret(asked.scope()?, asked.path("server"), asked.path("variable")).await?;
    Ok(done())
}

fn secret(asked: &mut Asked, longest: usize) -> Result<Secret> {
    let mut form = asked.form()?;
    let missing = || Error::invalid("secret", "must be set");
    let secret = Secret::new(form.text("secret", longest)?.ok_or_else(missing)?);
    form.end()?;
    Ok(secret)
}
