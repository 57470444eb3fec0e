//! REST endpoints of tool calls: start, list and cancel.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use linchpin_hub_core::Error;
use linchpin_hub_core::approval_rule::MAX_SESSION_LEN;
use linchpin_hub_core::hub::{CallOptions, CallRequest, CallView, ServerRequestKind, ToolRef};
use linchpin_hub_core::id::ServerId;
use linchpin_hub_core::object_reader::ObjectReader;
use linchpin_hub_core::store::CallFilter;
use linchpin_hub_core::trace_context::TraceContext;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::middleware::TRACEPARENT;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{json, json_with_status, with_location};
use crate::route::API;

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Header with vendor-specific data of the trace of the client.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(crate) const WAIT_PARAMETER: [Parameter; 1] = [Parameter::flag(
    "wait",
    "Whether the response waits until the call has finished; otherwise 202 for an unfinished call. Default: true",
)];
pub(crate) const STATUSES: [&str; 7] =
    ["pending", "running", "success", "error", "denied", "cancelled", "unknown"];
pub(crate) const FILTERS: [Parameter; 6] = [
    Parameter::text("server", "Return only calls of this server (id or slug)"),
    Parameter::text("tool", "Return only calls of the tool with this upstream name"),
    Parameter::one_of("status", "Return only calls with this status", &STATUSES),
    Parameter::text("subject", "Return only calls of this subject, for example agent:ID or user:ID"),
    Parameter::time("since", "Return only calls created at or after this time"),
    Parameter::time("until", "Return only calls created before this time"),
];

/// Request body that calls a tool: either `tool`, or `server` and `name`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewCall {
    /// Qualified name of the tool, such as `mcp_demo__add`.
    tool: Option<String>,
    /// Id or slug of the server whose tool is called, together with `name`; alternative to `tool`.
    server: Option<String>,
    /// Upstream name of the tool to call, together with `server`.
    name: Option<String>,
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

pub(crate) async fn create(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let tool = take_tool(&mut form)?;
    let (arguments, session) = (request.take_arguments(&mut form), take_session(&mut form)?);
    let (as_agent, options) = (take_agent(&mut form)?, take_options(&mut form)?);
    form.finish()?;
    run_call(&request, CallRequest { session, as_agent, ..CallRequest::new(tool, arguments) }, options).await
}

/// Takes the tool from a request body: its qualified name, or its server and upstream name.
pub(super) fn take_tool(form: &mut ObjectReader) -> Result<ToolRef> {
    let (tool, server, name) =
        (form.string("tool", 1_000)?, form.string("server", 64)?, form.string("name", 1_000)?);
    match (tool, server, name) {
        (Some(tool), None, None) => Ok(ToolRef::Qualified(tool)),
        (None, Some(server), Some(tool)) => Ok(ToolRef::Upstream { server, tool }),
        (None, Some(_), None) => {
            let text = "must be set together with `server`: the upstream name of the tool";
            Err(Error::invalid("name", text).into())
        }
        (None, None, Some(_)) => {
            let text = "must be set together with `name`: the id or slug of the server";
            Err(Error::invalid("server", text).into())
        }
        (None, None, None) => {
            Err(Error::invalid("tool", "must be set, or `server` and `name` instead").into())
        }
        _ => Err(Error::invalid("tool", "set either `tool`, or `server` and `name`").into()),
    }
}

/// Takes the session of the caller from a request body.
pub(super) fn take_session(form: &mut ObjectReader) -> Result<Option<String>> {
    Ok(form.string("session", MAX_SESSION_LEN)?)
}

/// Takes the agent from a request body with whose credential a user calls a tool.
pub(super) fn take_agent(form: &mut ObjectReader) -> Result<Option<String>> {
    Ok(form.string("as_agent", 200)?)
}

/// Takes the options of a call from a request body.
pub(super) fn take_options(form: &mut ObjectReader) -> Result<CallOptions> {
    let replies = match form.boolean("replies")? {
        Some(true) => vec![ServerRequestKind::Form, ServerRequestKind::Url],
        _ => Vec::new(),
    };
    Ok(CallOptions { replies, ..CallOptions::default() })
}

/// Returns the W3C trace context in the headers of a request, if it is valid and there is only one.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next().filter(|_| parents.next().is_none())?;
    let context = TraceContext::parse(parent.to_str().ok()?)?;
    let state: std::result::Result<Vec<_>, _> =
        headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str).collect();
    Some(match state {
        Ok(state) if !state.is_empty() => context.with_state(&state.join(",")),
        _ => context,
    })
}

/// Starts a call and returns its outcome, or its current state if the client does not wait.
pub(super) async fn run_call(
    request: &ApiRequest,
    call: CallRequest,
    options: CallOptions,
) -> Result<Response> {
    let call = CallRequest { trace: trace_context(&request.headers), ..call };
    let prefers = request.headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut prefers = prefers.flat_map(|value| value.split(',')).map(str::trim);
    let is_async = prefers.any(|preference| preference.eq_ignore_ascii_case("respond-async"));
    let wait = request.query.flag("wait").unwrap_or(!is_async);
    let (hub, actor) = (request.hub(), request.actor()?);
    let mut call = hub.calls().submit_call(actor, call, options, wait).await?;
    if wait && !call.status.is_final() {
        request.body_released.notify_one(); // an approval may take long
        call = hub.calls().wait(actor, call.id).await?;
    }
    let status = if call.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = with_location(json_with_status(status, &call)?, &call_path(&call));
    if is_async && !wait {
        response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    Ok(response)
}

fn call_path(call: &CallView) -> String {
    format!("{API}/calls/{}", call.id)
}

/// Returns the id of the server in the query parameter `server`, if there is one. A removed server can be given by id
/// only.
pub(super) async fn server_filter(request: &ApiRequest) -> Result<Option<ServerId>> {
    let Some(name) = request.query.text("server") else { return Ok(None) };
    match name.parse() {
        Ok(id) => Ok(Some(id)),
        Err(_) => Ok(Some(request.hub().registry().server(request.actor()?, name).await?.id)),
    }
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let actor = request.actor()?;
    let filter = CallFilter {
        server: server_filter(&request).await?,
        tool: request.query.text("tool").map(str::to_owned),
        status: request.query.parsed("status"),
        subject: request.query.text("subject").map(str::to_owned),
        since: request.query.time("since"),
        until: request.query.time("until"),
    };
    json(&request.hub().calls().list(actor, filter, &request.query.paging()).await?)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().calls().call(request.actor()?, request.path("call").parse()?).await?)
}

pub(crate) async fn cancel(request: ApiRequest) -> Result<Response> {
    json(&request.hub().calls().cancel_call(request.actor()?, request.path("call").parse()?).await?)
}
