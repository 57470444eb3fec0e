//! Gateway: the hub as one MCP server. Any MCP client reaches the tools, resources and prompts of all servers that it may
//! use at one endpoint, whatever revision and transport each side has. Calls go through the call pipeline of the hub.
//!
//! A request passes `endpoint`, which authenticates the client and finds its `surface`: an MCP server of the SDK with
//! everything that this client may use (`definitions`, `uris`). The surface forwards each request to the hub
//! (`forwarder`, `tool_call`); progress, log messages and server requests flow back through `client_link`.

mod approval;
mod client_link;
mod definitions;
mod endpoint;
mod errors;
mod forwarder;
mod surface;
mod tool_call;
mod uris;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use linchpin::server::web::OriginGuard;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::{Actor, Result, Subject};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::endpoint::GatewayPath;
pub use self::surface::Surface;

/// Kinds of events after which the definitions of callers may be others.
const CHANGE_EVENTS: [&str; 3] = ["tools", "server", "agent"];

/// Options of the gateway.
#[derive(Debug, Clone, Default)]
pub struct GatewayOptions {
    /// Hosts and origins that are accepted in addition to those of this machine.
    pub guard: OriginGuard,
    /// URL of the hub for users, where they approve calls.
    pub hub_url: Option<String>,
}

/// Gateway of a hub: its MCP endpoint, with one surface per caller.
pub struct Gateway {
    hub: Arc<Hub>,
    options: GatewayOptions,
    surfaces: Mutex<HashMap<SurfaceKey, Arc<Surface>>>,
    /// Notified when a client of any surface has changed its subscriptions.
    subscriptions_changed: Arc<Notify>,
}

/// Caller of the gateway, and what it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SurfaceKey {
    /// Actor in whose name the client acts.
    pub actor: Actor,
    /// Owner of the token of the client: the actor itself, or a user who acts as an agent.
    pub owner: Subject,
    /// Slug of the only server that the client reaches, under the names of that server. Default: all servers.
    pub server: Option<String>,
    /// Path of the endpoint.
    pub path: String,
}

impl Gateway {
    /// Creates the gateway of a hub.
    pub fn new(hub: Arc<Hub>, options: GatewayOptions) -> Arc<Self> {
        Arc::new(Gateway { hub, options, surfaces: Mutex::default(), subscriptions_changed: Arc::default() })
    }

    /// Returns the surface of a caller, with its current definitions.
    ///
    /// # Errors
    ///
    /// Fails if the caller may use nothing of the server that it names, or if there is no such server.
    pub async fn surface(&self, key: SurfaceKey) -> Result<Arc<Surface>> {
        let known = self.lock_surfaces().get(&key).cloned();
        if let Some(surface) = known {
            surface.refresh().await?;
            return Ok(surface);
        }
        let surface = Surface::new(&self.hub, &key, &self.options, &self.subscriptions_changed)?;
        surface.refresh().await?;
        // Only now, so that a name that is not a server leaves nothing behind.
        Ok(self.lock_surfaces().entry(key).or_insert(surface).clone())
    }

    /// Keeps the definitions of all surfaces current and notifies their clients, until `end` completes.
    pub async fn run(&self, end: impl Future<Output = ()>) {
        let (mut end, mut subscription) = (std::pin::pin!(end), self.hub.events().subscribe_all());
        let mut tasks = JoinSet::new();
        loop {
            let event = tokio::select! {
                () = &mut end => return self.close(),
                () = self.subscriptions_changed.notified() => {
                    // Each in its own task: an unresponsive server does not delay the others.
                    for surface in self.all_surfaces() {
                        tasks.spawn(async move { surface.update_subscriptions().await });
                    }
                    continue;
                }
                Some(_) = tasks.join_next() => continue,
                event = subscription.next() => event,
            };
            // After lost events, anything may have changed.
            let is_change = event.as_ref().map_or(true, |event| CHANGE_EVENTS.contains(&&*event.kind));
            if is_change {
                self.refresh_all().await;
            }
            if let Ok(event) = event {
                for surface in self.all_surfaces() {
                    surface.handle_event(&event);
                }
            }
        }
    }

    async fn refresh_all(&self) {
        for surface in self.all_surfaces() {
            if let Err(error) = surface.refresh().await {
                tracing::debug!(%error, "failed to refresh the definitions of a gateway client");
            }
        }
        self.lock_surfaces().retain(|_, surface| !surface.is_abandoned());
    }

    fn all_surfaces(&self) -> Vec<Arc<Surface>> {
        self.lock_surfaces().values().cloned().collect()
    }

    fn lock_surfaces(&self) -> std::sync::MutexGuard<'_, HashMap<SurfaceKey, Arc<Surface>>> {
        self.surfaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all streams of clients gracefully.
    pub fn close(&self) {
        self.all_surfaces().iter().for_each(|surface| surface.close());
    }
}
