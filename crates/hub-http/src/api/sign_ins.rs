//! Signing in to servers that want OAuth.

use axum::response::Response;
use http::StatusCode;
use linchpin_hub_core::store::Page;

use super::credentials::agent;
use crate::answer::{done, json, json_with};
use crate::asked::Asked;
use crate::problem::Result;

pub(crate) async fn begin(asked: Asked) -> Result<Response> {
    let begun = asked.hub().begin_sign_in(asked.scope()?, asked.path("server"), agent(&asked)?).await?;
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
    json(&Page { items, next: None })
}
