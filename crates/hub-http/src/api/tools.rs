//! REST endpoints of tools: list, get, trust and call.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::{CallRequest, ToolFilter, ToolRef};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::calls;
use crate::paging::page_by_key;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::json;

pub(crate) const TRUST_STATES: [&str; 3] = ["new", "trusted", "changed"];
pub(crate) const FILTERS: [Parameter; 5] = [
    Parameter::text("server", "Return only tools of this server (id or slug)"),
    Parameter::one_of("state", "Return only tools in this trust state", &TRUST_STATES),
    Parameter::text("agent", "Return only tools that this agent may use (id)"),
    Parameter::flag("callable", "Return only tools that can (true) or cannot (false) be called now"),
    Parameter::text("q", "Return only tools whose name or description contains this text"),
];

/// Request body that trusts a tool in the reviewed definition.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct TrustToolRequest {
    /// Pin of the definition that the user has reviewed. If the tool has another pin by now, the request fails.
    pin: String,
}

/// Request body with the arguments of a tool call.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct CallArguments {
    /// Arguments of the tool. Default: none.
    arguments: Option<Map<String, Value>>,
    /// Session or conversation of the caller, which approval rules can be limited to.
    #[schemars(length(min = 1, max = 256))]
    session: Option<String>,
    /// Name or id of the agent with whose credential the calling user tries the tool. Only for servers with credentials
    /// per agent.
    as_agent: Option<String>,
    /// Whether the caller replies to the elicitations of the server, which wait for a reply until the call ends.
    /// Otherwise they are declined at once. Default: false
    replies: Option<bool>,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let filter = ToolFilter {
        server: request.query.text("server").map(str::to_owned),
        state: request.query.parsed("state"),
        agent: request.query.text("agent").map(str::parse).transpose()?,
        callable: request.query.flag("callable"),
        q: request.query.text("q").map(str::to_owned),
    };
    let tools = request.hub().registry().tools(request.actor()?, &filter).await?;
    json(&page_by_key(tools, &request.query.paging(), |tool| tool.name.clone()))
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().tool(request.actor()?, request.path("tool")).await?)
}

pub(crate) async fn trust(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let pin = form.string("pin", 100)?.ok_or_else(|| {
        Error::invalid("pin", "must be set to the `pin` of the tool definition that you have reviewed")
    })?;
    form.finish()?;
    json(&request.hub().registry().trust_tool(request.actor()?, request.path("tool"), &pin).await?)
}

pub(crate) async fn call(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let (arguments, session) = (request.take_arguments(&mut form), calls::take_session(&mut form)?);
    let (as_agent, options) = (calls::take_agent(&mut form)?, calls::take_options(&mut form)?);
    form.finish()?;
    let tool = ToolRef::Qualified(request.path("tool").to_owned());
    let call = CallRequest { session, as_agent, ..CallRequest::new(tool, arguments) };
    calls::run_call(&request, call, options).await
}
