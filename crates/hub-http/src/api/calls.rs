//! Calls.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use linchpin_hub_core::Error;
use linchpin_hub_core::form::Form;
use linchpin_hub_core::hub::{CallView, Wanted, Which};
use linchpin_hub_core::id::ServerId;
use linchpin_hub_core::store::CallFilter;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::answer::{json, json_with, located};
use crate::asked::Asked;
use crate::problem::Result;
use crate::query::Parameter;
use crate::route::API;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(crate) const WAIT: [Parameter; 1] = [Parameter::flag(
    "wait",
    "Whether the answer waits until the call is over, which is the usual; without, it is 202 while it is not",
)];
pub(crate) const STATUSES: [&str; 7] =
    ["pending", "running", "success", "error", "denied", "cancelled", "unknown"];
pub(crate) const FILTERS: [Parameter; 6] = [
    Parameter::text("server", "Those of this server, by its id or slug"),
    Parameter::text("tool", "Those of this tool, as its server calls it"),
    Parameter::one_of("status", "Those that are so far", &STATUSES),
    Parameter::text("subject", "Those that this one wanted, such as agent: and an id"),
    Parameter::time("since", "Those from then on"),
    Parameter::time("until", "Those before then"),
];

/// A call that is to be made: the tool by its name here, or by its server and the server's name for it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct NewCall {
    /// The tool, by its name here.
    tool: Option<String>,
    /// The server, by its id or slug.
    server: Option<String>,
    /// The tool, as that server calls it.
    name: Option<String>,
    /// The arguments; none when nothing is said.
    arguments: Option<Map<String, Value>>,
}

pub(crate) async fn make_any(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let (tool, server, name) =
        (form.text("tool", 1_000)?, form.text("server", 64)?, form.text("name", 1_000)?);
    let arguments = arguments(&mut form);
    form.end()?;
    let which = match (tool, server, name) {
        (Some(tool), None, None) => Which::Local(tool),
        (None, Some(server), Some(tool)) => Which::Of { server, tool },
        (None, Some(_), None) => return Err(Error::invalid("name", "which tool of the server?").into()),
        (None, None, Some(_)) => return Err(Error::invalid("server", "the tool of which server?").into()),
        (None, None, None) => return Err(Error::invalid("tool", "which tool is to be called?").into()),
        _ => {
            let text = "give either `tool`, or `server` and `name`";
            return Err(Error::invalid("tool", text).into());
        }
    };
    make(&asked, which, arguments).await
}

/// The arguments in a form; none if it has none.
pub(super) fn arguments(form: &mut Form) -> Value {
    form.value("arguments").unwrap_or_else(|| Map::new().into())
}

/// Has a call made, and answers with what came of it.
pub(super) async fn make(asked: &Asked, tool: Which, arguments: Value) -> Result<Response> {
    let prefers = asked.headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut prefers = prefers.flat_map(|value| value.split(',')).map(str::trim);
    let is_async = prefers.any(|preference| preference.eq_ignore_ascii_case("respond-async"));
    let wait = asked.query.flag("wait").unwrap_or(!is_async);
    let (hub, scope) = (asked.hub(), asked.scope()?);
    let mut call = hub.begin_call(scope, Wanted { tool, arguments }, wait).await?;
    if wait && !call.status.is_final() {
        asked.is_read.notify_one(); // a person may take long
        call = hub.wait(scope, call.id).await?;
    }
    let status = if call.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = located(json_with(status, &call)?, &place(&call));
    if is_async && !wait {
        response.headers_mut().insert(APPLIED, HeaderValue::from_static("respond-async"));
    }
    Ok(response)
}

fn place(call: &CallView) -> String {
    format!("{API}/calls/{}", call.id)
}

/// The server that is asked for. One that is gone is known by its id alone.
async fn server(asked: &Asked) -> Result<Option<ServerId>> {
    let Some(name) = asked.query.text("server") else { return Ok(None) };
    match name.parse() {
        Ok(id) => Ok(Some(id)),
        Err(_) => Ok(Some(asked.hub().server(asked.scope()?, name).await?.id)),
    }
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let scope = asked.scope()?;
    let filter = CallFilter {
        server: server(&asked).await?,
        tool: asked.query.text("tool").map(str::to_owned),
        status: asked.query.one("status"),
        subject: asked.query.text("subject").map(str::to_owned),
        since: asked.query.time("since"),
        until: asked.query.time("until"),
    };
    json(&asked.hub().calls(scope, filter, &asked.query.paging()).await?)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().call(asked.scope()?, asked.path("call").parse()?).await?)
}

pub(crate) async fn cancel(asked: Asked) -> Result<Response> {
    json(&asked.hub().cancel_call(asked.scope()?, asked.path("call").parse()?).await?)
}
