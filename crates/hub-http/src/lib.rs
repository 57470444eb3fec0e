//! HTTP interface of the hub: REST API under `/api/v1`, events, metrics, and a status page. This crate handles requests
//! and responses only; the hub makes all access decisions.
//!
//! A request passes `middleware`; `router` authenticates the caller and reads the body; one handler in
//! `api` calls the hub. `routes` lists all routes, and `/api/v1/openapi.json` is generated from that list.

mod api;
mod app;
mod authentication;
mod body;
mod chunked_body;
mod events;
mod gateway;
mod metrics;
mod middleware;
mod openapi;
mod page;
mod paging;
mod problem;
mod query;
mod request;
mod response;
mod route;
mod router;
mod routes;

use std::sync::Arc;

use axum::Router;
use linchpin_hub_core::Platform;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_gateway::Gateway;
use serde_json::Value;

pub use app::HttpOptions;

use self::app::AppState;

/// HTTP service of a hub, with all its routes, to be served by a listener.
#[derive(Clone)]
pub struct HubService {
    app: Arc<AppState>,
    router: Router,
}

impl HubService {
    /// Creates the HTTP service of this hub.
    pub fn new(hub: Arc<Hub>, platform: Arc<dyn Platform>, options: HttpOptions) -> Self {
        let app = AppState::new(hub, platform, options);
        let router = router::router(&app, routes::all_routes());
        HubService { app, router }
    }

    /// Returns the HTTP service of the hub, for [`Listener::run_until`](linchpin::server::web::Listener::run_until).
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// Returns the gateway of the hub.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.app.gateway
    }

    /// Closes all event streams gracefully. Otherwise they last as long as their subscribers.
    pub fn close(&self) {
        self.app.close_streams();
    }
}

/// Generates the `OpenAPI` document of the hub's API.
pub fn openapi() -> Value {
    openapi::document(&routes::all_routes())
}
