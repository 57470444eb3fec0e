//! Routes of the MCP gateway: `/mcp` for everything that a caller may use, `/mcp/agents/{agent}` for what an agent may use.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::any;

use crate::app::AppState;

/// Adds the routes of the gateway. They are not part of the REST API: the protocol is MCP.
pub(crate) fn with_gateway(router: Router<Arc<AppState>>) -> Router<Arc<AppState>> {
    router.route("/mcp", any(serve)).route("/mcp/agents/{agent}", any(serve_agent))
}

async fn serve(State(app): State<Arc<AppState>>, request: Request) -> Response {
    app.gateway.handle(request, None).await.map(Body::new)
}

async fn serve_agent(
    State(app): State<Arc<AppState>>,
    Path(agent): Path<String>,
    request: Request,
) -> Response {
    app.gateway.handle(request, Some(&agent)).await.map(Body::new)
}
