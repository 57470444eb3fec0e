//! What all requests share.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::egress::Network;
use linchpin::server::web::{Bodies, Guard};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::world::{World, random};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Bytes of all bodies that are on their way or in use.
const MOST_BODIES: usize = 64 << 20;

/// What can be chosen for the hub over HTTP.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The hosts and origins that are let in beside those of this machine.
    pub guard: Guard,
    /// Whether browsers reach it by `https`, such as through a proxy: then cookies are sent over TLS alone.
    pub is_secure: bool,
    /// Proxies whose `X-Forwarded-For` header names the client.
    pub proxies: Vec<Network>,
    /// What is wrong with the operator's file, as it is now.
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
    /// Tells the events of this run from those of others.
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

    /// What is wrong with the operator's file.
    pub(crate) fn file_problem(&self) -> Option<String> {
        self.file_problem.as_ref().and_then(|problem| problem.borrow().clone())
    }

    /// Ends what has no end of its own.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Done when everything is to end.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        let _ = closing.wait_for(|closing| *closing).await; // or there is nobody left who could say so
    }
}
