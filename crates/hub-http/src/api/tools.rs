//! Tools.

use axum::response::Response;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::{ToolFilter, Which};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::calls;
use crate::answer::json;
use crate::asked::Asked;
use crate::list::cut;
use crate::problem::Result;
use crate::query::Parameter;

pub(crate) const STATES: [&str; 3] = ["new", "trusted", "changed"];
pub(crate) const FILTERS: [Parameter; 5] = [
    Parameter::text("server", "Those of this server, by its id or slug"),
    Parameter::one_of("state", "Those that people have said this of", &STATES),
    Parameter::text("agent", "Those that this agent may use, by its id"),
    Parameter::flag("callable", "Those that can be called now, or not"),
    Parameter::text("q", "Those with this in their name or description"),
];

/// Which definition somebody has looked at.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct ToolSeen {
    /// The `pin` of the tool as it was looked at. If it is another one by now, nothing is trusted.
    pin: String,
}

/// What a tool is called with.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct CallArguments {
    /// The arguments; none when nothing is said.
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
        Error::invalid("pin", "it says which definition you have looked at: take it from the tool")
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
