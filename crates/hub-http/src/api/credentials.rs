//! Credentials of servers and secrets of programs: written and removed, never read.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::id::AgentId;
use schemars::JsonSchema;

use crate::answer::{done, json};
use crate::asked::Asked;
use crate::problem::Result;
use crate::query::Parameter;

pub(crate) const WHOSE: [Parameter; 1] =
    [Parameter::text("agent", "The id of the agent whose it is; everybody's without it")];

/// A credential that is to be kept.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct NewCredential {
    /// The token, the key or the password.
    #[schemars(length(min = 1, max = 16_384))]
    secret: String,
}

/// The value of a variable that is to be kept.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct NewSecret {
    /// The value.
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
    let missing = || Error::invalid("secret", "what is kept is a secret: send it");
    let secret = Secret::new(form.text("secret", longest)?.ok_or_else(missing)?);
    form.end()?;
    Ok(secret)
}
