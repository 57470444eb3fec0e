//! REST endpoints that list and read resources and prompts of servers.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::FeatureList;
use schemars::JsonSchema;
use std::collections::BTreeMap;

use crate::paging::page_by_position;
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::json;

/// Request body that reads a resource.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ReadResourceRequest {
    /// URI of the resource to read.
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

pub(crate) async fn read(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("uri", "must be set: the URI of the resource to read");
    let uri = form.string("uri", 8_192)?.ok_or_else(missing)?;
    form.finish()?;
    json(&request.hub().calls().read_resource(request.actor()?, request.path("server"), &uri).await?)
}

pub(crate) async fn prompt(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let arguments = form.string_map("arguments", 100, 100_000)?;
    form.finish()?;
    let (server, prompt) = (request.path("server"), request.path("prompt"));
    json(&request.hub().calls().get_prompt(request.actor()?, server, prompt, arguments).await?)
}
