//! OAuth sign-ins to servers.

use axum::response::Response;
use http::StatusCode;
use linchpin::auth::Secret;
use linchpin_hub_core::hub::oauth::Progress;

use super::credentials::agent;
use crate::paging::numbered;
use crate::problem::Result;
use crate::request::Asked;
use crate::response::{done, json, json_with};

pub(crate) async fn begin(asked: Asked) -> Result<Response> {
    let hub = asked.hub();
    let mut begun = hub.begin_sign_in(asked.scope()?, asked.path("server"), agent(&asked)?).await?;
    // The operator can read the files of the hub and thus is the local user, who may have no password: add a login
    // link, so that the browser can log in.
    if asked.caller()?.is_operator(&asked.app) && begun.progress == Progress::Waiting {
        let (base, _) = begun.url.split_once("/oauth/").unwrap_or_default();
        let link = |once: Secret| format!("{base}/sign-in?token={}&sign_in={}", once.expose(), begun.id);
        begun.link = hub.one_time().await?.map(link);
    }
    json_with(StatusCode::CREATED, &begun)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().sign_in_view(asked.scope()?, asked.path("sign_in")).await?)
}

pub(crate) async fn standing(asked: Asked) -> Result<Response> {
    json(&asked.hub().standing(asked.scope()?, asked.path("server"), agent(&asked)?).await?)
}

pub(crate) async fn end(asked: Asked) -> Result<Response> {
    asked.hub().sign_out_of(asked.scope()?, asked.path("server"), agent(&asked)?).await?;
    Ok(done())
}

pub(crate) async fn trace(asked: Asked) -> Result<Response> {
    let items = asked.hub().trace(asked.scope()?, asked.path("server"), agent(&asked)?).await?;
    json(&numbered(items, &asked.query.paging()))
}
