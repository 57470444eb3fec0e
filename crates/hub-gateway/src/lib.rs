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
mod subscriptions;
mod surface;
mod tool_call;
mod uris;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linchpin::Server;
use linchpin::server::HttpService;
use linchpin::server::web::OriginGuard;
use linchpin_hub_core::events::Event;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::{Actor, Result, Subject};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use self::subscriptions::{RETRY_INTERVAL, SubscriptionKey, Subscriptions};

pub use self::endpoint::GatewayPath;
pub use self::surface::Surface;

/// Time that the first syncs of new servers may delay the first client of a caller.
const FIRST_SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// Kinds of events after which the definitions of callers may be others.
const CHANGE_EVENTS: [&str; 3] = ["tools", "server", "agent"];
/// Kind of the event that a subscribed resource was updated.
const RESOURCE_UPDATED: &str = "resource.updated";
/// Kind of the event that a subscription has ended.
const SUBSCRIPTION_ENDED: &str = "resource.subscription_ended";

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
    subscriptions: Subscriptions,
    /// Endpoint without definitions that responds to CORS preflight requests.
    preflight: HttpService,
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
        let subscriptions = Subscriptions::new(hub.clone());
        let mut guard = options.guard.clone();
        guard.allow_any_host(); // the listener of the hub has checked the host
        let preflight = Server::new("linchpin", env!("CARGO_PKG_VERSION")).http().origin_guard(guard);
        let preflight = preflight.into_service().expect("a server without definitions is valid");
        Arc::new(Gateway { hub, options, surfaces: Mutex::default(), subscriptions, preflight })
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
        // A slow server must not delay the client for long: its tools are announced later.
        let synced = self.hub.registry().sync_new_servers(key.actor.tenant());
        if let Ok(synced) = timeout(FIRST_SYNC_TIMEOUT, synced).await {
            synced?;
        }
        let surface = Surface::new(&self.hub, &key, &self.options, &self.subscriptions)?;
        surface.refresh().await?;
        // Only now, so that a name that is not a server leaves nothing behind.
        Ok(self.lock_surfaces().entry(key).or_insert(surface).clone())
    }

    /// Keeps the definitions of all surfaces current and notifies their clients, until `end` completes.
    pub async fn run(&self, end: impl Future<Output = ()>) {
        let (mut end, mut subscription) = (std::pin::pin!(end), self.hub.events().subscribe_to_changes());
        let (mut tasks, mut retries) = (JoinSet::new(), interval(RETRY_INTERVAL));
        loop {
            let event = tokio::select! {
                () = &mut end => return self.close(),
                () = self.subscriptions.changed.notified() => {
                    self.update_subscriptions(&mut tasks);
                    continue;
                }
                _ = retries.tick() => {
                    self.update_subscriptions(&mut tasks);
                    continue;
                }
                Some(_) = tasks.join_next() => continue,
                event = subscription.next() => event,
            };
            // After lost events, anything may have changed.
            if event.as_ref().map_or(true, |event| CHANGE_EVENTS.contains(&&*event.kind)) {
                self.refresh_all().await;
            }
            if let Ok(event) = event {
                self.handle_resource_event(&event);
            }
        }
    }

    fn update_subscriptions(&self, tasks: &mut JoinSet<()>) {
        let forwarders: Vec<_> =
            self.all_surfaces().iter().map(|surface| surface.forwarder().clone()).collect();
        self.subscriptions.update(&forwarders, tasks);
    }

    /// Passes an update of a subscribed resource on to the clients, and notices the end of a subscription.
    fn handle_resource_event(&self, event: &Event) {
        if event.kind != RESOURCE_UPDATED && event.kind != SUBSCRIPTION_ENDED {
            return;
        }
        let server = event.body["server"].as_str().and_then(|server| server.parse().ok());
        let (Some(uri), Some(server)) = (event.body["uri"].as_str(), server) else { return };
        for surface in self.all_surfaces() {
            let (forwarder, subject) = (surface.forwarder(), event.body["subject"].as_str());
            let actor = forwarder.actor;
            if actor.tenant() != event.tenant || subject != Some(&*actor.subject().to_string()) {
                continue;
            }
            let names = forwarder.names();
            let Some(slug) = names.uris.slug(server) else { continue };
            let key = SubscriptionKey { actor, server: slug.to_owned(), uri: uri.to_owned() };
            if event.kind == RESOURCE_UPDATED {
                surface.resource_updated(&key);
            } else {
                self.subscriptions.lost(&key);
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
