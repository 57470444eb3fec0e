//! REST endpoints of server credentials and environment secrets: they are stored and deleted, never returned.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::id::AgentId;
use schemars::JsonSchema;

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{json, no_content};

pub(crate) const AGENT_PARAMETER: [Parameter; 1] = [Parameter::text(
    "agent",
    "Id of the agent whose credential or OAuth grant is meant. Default: the one that all agents share",
)];

/// Request body that stores the credential of a server.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewCredential {
    /// Token, key or password to store.
    #[schemars(length(min = 1, max = 16_384))]
    secret: String,
}

/// Request body that stores an environment secret of a stdio server.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewSecret {
    /// Secret value of the environment variable.
    #[schemars(length(min = 1, max = 32_768))]
    secret: String,
}

pub(super) fn agent_parameter(request: &ApiRequest) -> Result<Option<AgentId>> {
    Ok(request.query.text("agent").map(str::parse).transpose()?)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(
        &request
            .hub()
            .upstream()
            .credential(request.actor()?, request.path("server"), agent_parameter(&request)?)
            .await?,
    )
}

pub(crate) async fn set(mut request: ApiRequest) -> Result<Response> {
    let secret = required_secret(&mut request, 16_384)?;
    let agent = agent_parameter(&request)?;
    json(
        &request
            .hub()
            .upstream()
            .set_credential(request.actor()?, request.path("server"), agent, &secret)
            .await?,
    )
}

pub(crate) async fn delete(request: ApiRequest) -> Result<Response> {
    request
        .hub()
        .upstream()
        .delete_credential(request.actor()?, request.path("server"), agent_parameter(&request)?)
        .await?;
    Ok(no_content())
}

pub(crate) async fn set_env_secret(mut request: ApiRequest) -> Result<Response> {
    let secret = required_secret(&mut request, 32_768)?;
    let (server, variable) = (request.path("server"), request.path("variable"));
    json(&request.hub().registry().set_env_secret(request.actor()?, server, variable, &secret).await?)
}

pub(crate) async fn delete_env_secret(request: ApiRequest) -> Result<Response> {
    request
        .hub()
        .registry()
        .delete_env_secret(request.actor()?, request.path("server"), request.path("variable"))
        .await?;
    Ok(no_content())
}

fn required_secret(request: &mut ApiRequest, max_len: usize) -> Result<Secret> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("secret", "must be set: the secret to store");
    let secret = Secret::new(form.string("secret", max_len)?.ok_or_else(missing)?);
    form.finish()?;
    Ok(secret)
}
