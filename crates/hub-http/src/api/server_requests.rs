//! REST endpoints of open server requests: list and reply.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::{ServerReply, ServerRequestView};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::paging::page_by_key;
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::{json, no_content};

/// Maximum length of the name of an action.
const MAX_ACTION_LEN: usize = 16;

/// Request body that replies to an open server request.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct Reply {
    /// What the user decides: `accept`, `decline`, or `cancel` without a choice.
    action: String,
    /// Fields of the form, if it is accepted. They are sent to the server and not stored.
    content: Option<Map<String, Value>>,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    respond_with_page(&request, request.hub().calls().server_requests(request.actor()?))
}

pub(crate) async fn list_of_call(request: ApiRequest) -> Result<Response> {
    let call = request.path("call").parse()?;
    respond_with_page(&request, request.hub().calls().server_requests_of(request.actor()?, call).await?)
}

fn respond_with_page(request: &ApiRequest, all: Vec<ServerRequestView>) -> Result<Response> {
    json(&page_by_key(all, &request.query.paging(), |view| view.id.to_string()))
}

pub(crate) async fn reply(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let (action, content) = (form.string("action", MAX_ACTION_LEN)?, form.value("content"));
    form.finish()?;
    let reply = match (action.as_deref(), content) {
        (Some("accept"), content) => ServerReply::Accept(content),
        (Some("decline"), None) => ServerReply::Decline,
        (Some("cancel"), None) => ServerReply::Cancel,
        (Some("decline" | "cancel"), Some(_)) => {
            return Err(Error::invalid("content", "must be absent unless `action` is `accept`").into());
        }
        _ => return Err(Error::invalid("action", "must be `accept`, `decline` or `cancel`").into()),
    };
    let id = request.path("server_request").parse()?;
    request.hub().calls().reply_to_server_request(request.actor()?, id, reply).await?;
    Ok(no_content())
}
