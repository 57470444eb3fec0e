//! Tools as providers of models want them described.

use axum::response::Response;
use linchpin_hub_core::hub::ToolFilter;

use crate::answer::json;
use crate::asked::Asked;
use crate::problem::Result;
use crate::query::Parameter;

pub(crate) const FILTERS: [Parameter; 2] = [
    Parameter::text("server", "Those of this server, by its id or slug"),
    Parameter::text("agent", "Those that this agent may use, by its id"),
];

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    let filter = ToolFilter {
        server: asked.query.text("server").map(str::to_owned),
        agent: asked.query.text("agent").map(str::parse).transpose()?,
        ..ToolFilter::default()
    };
    json(&asked.hub().export(asked.scope()?, asked.path("format").parse()?, filter).await?)
}
