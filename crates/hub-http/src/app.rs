//! State of the HTTP interface that all requests share, and its options.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::egress::Network;
use linchpin::server::web::{BodyReader, OriginGuard};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::platform::{Platform, random};
use linchpin_hub_gateway::{Gateway, GatewayOptions};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Maximum total size of all request bodies in memory, in bytes.
const MAX_TOTAL_BODY_BYTES: usize = 64 << 20;

/// Options of the HTTP interface of the hub: accepted hosts and origins, cookies and proxies.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Hosts and origins that are accepted in addition to those of this machine.
    pub guard: OriginGuard,
    /// Whether browsers reach the hub over `https`, for example through a proxy. Cookies are then marked `Secure`.
    pub is_secure: bool,
    /// Proxies whose `X-Forwarded-For` header names the client.
    pub proxies: Vec<Network>,
    /// URL of the hub for users.
    pub hub_url: Option<String>,
    /// Current problem of the configuration file, which the hub status shows.
    pub file_problem: Option<watch::Receiver<Option<String>>>,
}

pub(crate) struct AppState {
    pub(crate) hub: Arc<Hub>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) guard: OriginGuard,
    pub(crate) is_secure: bool,
    pub(crate) proxies: Vec<Network>,
    file_problem: Option<watch::Receiver<Option<String>>>,
    pub(crate) bodies: BodyReader,
    pub(crate) metrics: Metrics,
    pub(crate) started: Timestamp,
    /// Identifier of the event log; event ids of another log cannot be resumed.
    pub(crate) event_log_id: String,
    shutdown: watch::Sender<bool>,
}

impl AppState {
    pub(crate) fn new(hub: Arc<Hub>, platform: Arc<dyn Platform>, options: HttpOptions) -> Arc<Self> {
        let started = platform.now();
        let random = || Digest::from_bytes(random(&*platform)).to_string()[..8].to_owned();
        let gateway_options = GatewayOptions { guard: options.guard.clone(), hub_url: options.hub_url };
        let gateway = Gateway::new(hub.clone(), gateway_options);
        let event_log_id = hub.event_log_id().map_or_else(random, str::to_owned);
        Arc::new(AppState {
            hub,
            gateway,
            platform,
            guard: options.guard,
            is_secure: options.is_secure,
            proxies: options.proxies,
            file_problem: options.file_problem,
            bodies: BodyReader::new(MAX_TOTAL_BODY_BYTES),
            metrics: Metrics::new(started),
            started,
            event_log_id,
            shutdown: watch::Sender::new(false),
        })
    }

    /// Returns the current problem of the configuration file.
    pub(crate) fn file_problem(&self) -> Option<String> {
        self.file_problem.as_ref().and_then(|problem| problem.borrow().clone())
    }

    /// Closes all open event streams of subscribers.
    pub(crate) fn close_streams(&self) {
        self.shutdown.send_replace(true);
        self.gateway.close();
    }

    /// Completes when [`Self::close_streams`] is called.
    pub(crate) async fn wait_closed(&self) {
        let mut closing = self.shutdown.subscribe();
        let _ = closing.wait_for(|closing| *closing).await; // an error means that the sender is gone
    }
}
