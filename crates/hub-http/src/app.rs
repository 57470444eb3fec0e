//! State shared by all requests.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::egress::Network;
use linchpin::server::web::{Bodies, Guard};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::platform::{World, random};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Maximum total size of all request bodies in memory, in bytes.
const MOST_BODIES: usize = 64 << 20;

/// Options of the HTTP interface.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Hosts and origins that are accepted in addition to those of this machine.
    pub guard: Guard,
    /// Whether browsers use `https`, for example through a proxy. Cookies are then marked `Secure`.
    pub is_secure: bool,
    /// Proxies whose `X-Forwarded-For` header names the client.
    pub proxies: Vec<Network>,
    /// Current problem of the configuration file.
    pub file_problem: Option<watch::Receiver<Option<String>>>,
}

pub(crate) struct App {
    pub(crate) hub: Arc<Hub>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) guard: Guard,
    pub(crate) is_secure: bool,
    pub(crate) proxies: Vec<Network>,
    file_problem: Option<watch::Receiver<Option<String>>>,
    pub(crate) bodies: Bodies,
    pub(crate) metrics: Metrics,
    pub(crate) begun: Timestamp,
    /// Identifier of the event log; event ids of another log cannot be resumed.
    pub(crate) run: String,
    closing: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(hub: Arc<Hub>, world: Arc<dyn World>, options: Options) -> Arc<Self> {
        let begun = world.now();
        let random = || Digest::from_bytes(random(&*world)).to_string()[..8].to_owned();
        let run = hub.line().map_or_else(random, str::to_owned);
        Arc::new(App {
            hub,
            world,
            guard: options.guard,
            is_secure: options.is_secure,
            proxies: options.proxies,
            file_problem: options.file_problem,
            bodies: Bodies::new(MOST_BODIES),
            metrics: Metrics::new(begun),
            begun,
            run,
            closing: watch::Sender::new(false),
        })
    }

    /// Returns the current problem of the configuration file.
    pub(crate) fn file_problem(&self) -> Option<String> {
        self.file_problem.as_ref().and_then(|problem| problem.borrow().clone())
    }

    /// Closes all event streams.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Completes when [`Self::close`] is called.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        let _ = closing.wait_for(|closing| *closing).await; // an error means that the sender is gone
    }
}
