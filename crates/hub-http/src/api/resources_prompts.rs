//! REST endpoints that list and read resources and prompts of servers, and subscribe to resources.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::FeatureList;
use schemars::JsonSchema;
use std::collections::BTreeMap;

use crate::paging::{page_by_key, page_by_position};
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::{json, no_content};

/// Request body that names a resource.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ResourceUri {
    /// URI of the resource.
    #[schemars(length(min = 1, max = 8_192))]
    uri: String,
}

/// Request body with the arguments of a prompt.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct PromptArguments {
    /// Arguments of the prompt. Default: none.
    arguments: Option<BTreeMap<String, String>>,
}

async fn list(request: ApiRequest, feature: FeatureList) -> Result<Response> {
    let items = request.hub().calls().list_feature(request.actor()?, request.path("server"), feature).await?;
    json(&page_by_position(items, &request.query.paging()))
}

pub(crate) async fn resources(request: ApiRequest) -> Result<Response> {
    list(request, FeatureList::Resources).await
}

pub(crate) async fn templates(request: ApiRequest) -> Result<Response> {
    list(request, FeatureList::Templates).await
}

pub(crate) async fn prompts(request: ApiRequest) -> Result<Response> {
    list(request, FeatureList::Prompts).await
}

/// Takes the URI of a resource from the request body.
fn take_uri(request: &mut ApiRequest) -> Result<String> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("uri", "must be set: the URI of the resource");
    let uri = form.string("uri", 8_192)?.ok_or_else(missing)?;
    form.finish()?;
    Ok(uri)
}

pub(crate) async fn subscriptions(request: ApiRequest) -> Result<Response> {
    let items = request.hub().calls().subscriptions(request.actor()?, request.path("server")).await?;
    json(&page_by_key(items, &request.query.paging(), |subscription| subscription.uri.clone()))
}

pub(crate) async fn subscribe(mut request: ApiRequest) -> Result<Response> {
    let uri = take_uri(&mut request)?;
    json(&request.hub().calls().subscribe(request.actor()?, request.path("server"), &uri).await?)
}

pub(crate) async fn unsubscribe(mut request: ApiRequest) -> Result<Response> {
    let uri = take_uri(&mut request)?;
    request.hub().calls().unsubscribe(request.actor()?, request.path("server"), &uri).await?;
    Ok(no_content())
}

pub(crate) async fn read(mut request: ApiRequest) -> Result<Response> {
    let uri = take_uri(&mut request)?;
    json(&request.hub().calls().read_resource(request.actor()?, request.path("server"), &uri).await?)
}

pub(crate) async fn prompt(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let arguments = form.string_map("arguments", 100, 100_000)?;
    form.finish()?;
    let (server, prompt) = (request.path("server"), request.path("prompt"));
    json(&request.hub().calls().get_prompt(request.actor()?, server, prompt, arguments).await?)
}
