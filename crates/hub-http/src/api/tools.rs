//! Tools.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::{ToolFilter, Which};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::calls;
use crate::paging::cut;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::Asked;
use crate::response::json;

pub(crate) const STATES: [&str; 3] = ["new", "trusted", "changed"];
pub(crate) const FILTERS: [Parameter; 5] = [
    Parameter::text("server", "Filter by server (id or slug)"),
    Parameter::one_of("state", "Filter by trust state", &STATES),
    Parameter::text("agent", "Filter by an agent that may use the tool (id)"),
    Parameter::flag("callable", "Filter by whether the tool can be called now"),
    Parameter::text("q", "Filter by part of the name or description"),
];

/// Request to trust a tool.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct ToolSeen {
    /// `pin` of the reviewed definition. If the tool has another pin by now, the request fails.
    pin: String,
}

/// Request to call a tool.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct CallArguments {
    /// Arguments of the tool. Default: none.
    arguments: Option<Map<String, Value>>,
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let filter = ToolFilter {
        server: asked.query.text("server").map(str::to_owned),
        state: asked.query.one("state"),
        agent: asked.query.text("agent").map(str::parse).transpose()?,
        callable: asked.query.flag("callable"),
        q: asked.query.text("q").map(str::to_owned),
    };
    let tools = asked.hub().tools(asked.scope()?, &filter).await?;
    json(&cut(tools, &asked.query.paging(), |tool| tool.name.clone()))
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().tool(asked.scope()?, asked.path("tool")).await?)
}

pub(crate) async fn trust(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let pin = form.text("pin", 100)?.ok_or_else(|| {
        Error::invalid("pin", "must be set to the `pin` of the tool definition that you have reviewed")
    })?;
    form.end()?;
    json(&asked.hub().trust_tool(asked.scope()?, asked.path("tool"), &pin).await?)
}

pub(crate) async fn call(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let arguments = calls::arguments(&mut form);
    form.end()?;
    let tool = Which::Local(asked.path("tool").to_owned());
    calls::make(&asked, tool, arguments).await
}
