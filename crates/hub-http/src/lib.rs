//! The hub over HTTP: REST under `/api/v1`, events, metrics, and a plain page. It knows requests and answers; what may be
//! done, and by whom, the hub decides.
//!
//! A request passes `guard`, then `router` finds out who asks and reads what they sent, and one function of `api` has
//! the hub do it. `routes` lists them all; the document at `/api/v1/openapi.json` is made of that list.

mod answer;
mod api;
mod app;
mod asked;
mod body;
mod events;
mod guard;
mod list;
mod metrics;
mod openapi;
mod page;
mod problem;
mod query;
mod route;
mod router;
mod routes;
mod session;
mod stream;

use std::sync::Arc;

use axum::Router;
use linchpin_hub_core::World;
use linchpin_hub_core::hub::Hub;
use serde_json::Value;

pub use app::Options;

use self::app::App;

/// The hub over HTTP.
#[derive(Clone)]
pub struct Web {
    app: Arc<App>,
    router: Router,
}

impl Web {
    /// Serves this hub.
    pub fn new(hub: Arc<Hub>, world: Arc<dyn World>, options: Options) -> Self {
        let app = App::new(hub, world, options);
        let router = router::router(&app, routes::all());
        Web { app, router }
    }

    /// What answers requests: a service for [`Listener::run_until`](linchpin::server::web::Listener::run_until).
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// Ends streams of events in good order: without this they go on for as long as somebody watches.
    pub fn close(&self) {
        self.app.close();
    }
}

/// The `OpenAPI` document.
pub fn openapi() -> Value {
    openapi::document(&routes::all())
}
