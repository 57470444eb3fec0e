//! Resources and prompts of servers.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::Offer;
use schemars::JsonSchema;
use std::collections::BTreeMap;

use crate::paging::numbered;
use crate::problem::Result;
use crate::request::Asked;
use crate::response::json;

/// Request to read a resource.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ResourceToRead {
    /// URI of the resource.
    #[schemars(length(min = 1, max = 8_192))]
    uri: String,
}

/// Request to get a prompt.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct PromptArguments {
    /// Arguments of the prompt. Default: none.
    arguments: Option<BTreeMap<String, String>>,
}

async fn offers(asked: Asked, what: Offer) -> Result<Response> {
    let offers = asked.hub().offers(asked.scope()?, asked.path("server"), what).await?;
    json(&numbered(offers, &asked.query.paging()))
}

pub(crate) async fn resources(asked: Asked) -> Result<Response> {
    offers(asked, Offer::Resources).await
}

pub(crate) async fn templates(asked: Asked) -> Result<Response> {
    offers(asked, Offer::Templates).await
}

pub(crate) async fn prompts(asked: Asked) -> Result<Response> {
    offers(asked, Offer::Prompts).await
}

pub(crate) async fn read(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let missing = || Error::invalid("uri", "must be set");
    let uri = form.text("uri", 8_192)?.ok_or_else(missing)?;
    form.end()?;
    json(&asked.hub().read_resource(asked.scope()?, asked.path("server"), &uri).await?)
}

pub(crate) async fn prompt(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let arguments = form.map("arguments", 100, 100_000)?;
    form.end()?;
    let (server, prompt) = (asked.path("server"), asked.path("prompt"));
    json(&asked.hub().get_prompt(asked.scope()?, server, prompt, arguments).await?)
}
