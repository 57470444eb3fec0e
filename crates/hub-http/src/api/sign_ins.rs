//! REST endpoints of OAuth sign-ins to servers: start, status and sign-out.

use axum::response::Response;
use http::StatusCode;
use linchpin::auth::Secret;
use linchpin_hub_core::hub::oauth::SignInStatus;

use super::credentials::agent_parameter;
use crate::paging::page_by_position;
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::{json, json_with_status, no_content};

pub(crate) async fn start(request: ApiRequest) -> Result<Response> {
    let hub = request.hub();
    let mut sign_in = hub
        .upstream()
        .start_sign_in(request.actor()?, request.path("server"), agent_parameter(&request)?)
        .await?;
    // The operator can read the files of the hub and thus is the local user, who may have no password: add a login
    // link, so that the browser can log in.
    if request.caller()?.is_operator(&request.app) && sign_in.progress == SignInStatus::Waiting {
        let (base, _) = sign_in.url.split_once("/oauth/").unwrap_or_default();
        let link = |token: Secret| format!("{base}/sign-in?token={}&sign_in={}", token.expose(), sign_in.id);
        sign_in.link = hub.identity().create_login_link().await?.map(link);
    }
    json_with_status(StatusCode::CREATED, &sign_in)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().upstream().sign_in_view(request.actor()?, request.path("sign_in")).await?)
}

pub(crate) async fn grant_status(request: ApiRequest) -> Result<Response> {
    json(
        &request
            .hub()
            .upstream()
            .grant_status(request.actor()?, request.path("server"), agent_parameter(&request)?)
            .await?,
    )
}

pub(crate) async fn delete(request: ApiRequest) -> Result<Response> {
    request
        .hub()
        .upstream()
        .sign_out_of_server(request.actor()?, request.path("server"), agent_parameter(&request)?)
        .await?;
    Ok(no_content())
}

pub(crate) async fn trace(request: ApiRequest) -> Result<Response> {
    let items = request
        .hub()
        .upstream()
        .trace(request.actor()?, request.path("server"), agent_parameter(&request)?)
        .await?;
    json(&page_by_position(items, &request.query.paging()))
}
