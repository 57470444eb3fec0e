//! Routes of the MCP gateway: `/mcp` for everything that a caller may use, `/mcp/agents/{agent}` for what an agent may use,
//! and `/mcp/servers/{server}` for one server under its own names.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::any;
use linchpin_hub_gateway::GatewayPath;

use crate::app::AppState;

/// Adds the routes of the gateway. They are not part of the REST API: the protocol is MCP.
pub(crate) fn with_gateway(router: Router<Arc<AppState>>) -> Router<Arc<AppState>> {
    router
        .route("/mcp", any(serve_all))
        .route("/mcp/agents/{agent}", any(serve_agent))
        .route("/mcp/servers/{server}", any(serve_server))
}

async fn serve_all(State(app): State<Arc<AppState>>, request: Request) -> Response {
    serve(&app, request, GatewayPath::All).await
}

async fn serve_agent(
    State(app): State<Arc<AppState>>,
    Path(agent): Path<String>,
    request: Request,
) -> Response {
    serve(&app, request, GatewayPath::Agent(agent)).await
}

async fn serve_server(
    State(app): State<Arc<AppState>>,
    Path(server): Path<String>,
    request: Request,
) -> Response {
    serve(&app, request, GatewayPath::Server(server)).await
}

async fn serve(app: &AppState, request: Request, reached: GatewayPath) -> Response {
    app.gateway.handle(request, reached).await.map(Body::new)
}
