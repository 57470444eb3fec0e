//! REST endpoints that export tools for model providers, and servers for other MCP clients.

use axum::response::Response;
use linchpin_hub_core::hub::ToolFilter;

use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::json;

pub(crate) const FILTERS: [Parameter; 2] = [
    Parameter::text("server", "Export only tools of this server (id or slug)"),
    Parameter::text("agent", "Export only tools that this agent may use (id)"),
];

pub(crate) const SERVERS: [Parameter; 1] = [Parameter::text(
    "servers",
    "Servers to export: ids or slugs, separated by commas. Default: all enabled servers",
)];

pub(crate) async fn client(request: ApiRequest) -> Result<Response> {
    let names = request.query.text("servers").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let names: Vec<_> = names.map(str::to_owned).collect();
    json(
        &request
            .hub()
            .registry()
            .client_config(request.actor()?, request.path("client").parse()?, &names)
            .await?,
    )
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    let filter = ToolFilter {
        server: request.query.text("server").map(str::to_owned),
        agent: request.query.text("agent").map(str::parse).transpose()?,
        ..ToolFilter::default()
    };
    json(&request.hub().registry().export(request.actor()?, request.path("format").parse()?, filter).await?)
}
