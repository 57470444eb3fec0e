//! Surface of a caller: an MCP server with everything that the caller may use, kept current.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linchpin::server::{HttpService, ServerHandle};
use linchpin::{Server, Service, StateKey, StateKeys};
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::{Error, ErrorKind, Result, shorten};
use tokio::sync::Mutex;

use crate::definitions::definitions;
use crate::forwarder::{Forwarder, Receiver};
use crate::subscriptions::{SubscriptionKey, Subscriptions};
use crate::{GatewayOptions, SurfaceKey};

/// Generation of a surface whose definitions were never built.
const NEVER: u64 = u64::MAX;
/// Maximum number of sessions of one caller.
const MAX_SESSIONS: usize = 2_000;

/// MCP server with everything that one caller may use.
pub struct Surface {
    forwarder: Arc<Forwarder>,
    service: Service,
    handle: ServerHandle,
    http: HttpService,
    /// Generation of the stored records that the definitions were built from.
    generation: AtomicU64,
    /// Whether the agent of the surface was disabled or removed.
    is_abandoned: AtomicBool,
    /// Lock held while the definitions are built, so that older ones never replace newer ones.
    refresh_lock: Mutex<()>,
}

impl Surface {
    pub(crate) fn new(
        hub: &Arc<Hub>,
        key: &SurfaceKey,
        options: &GatewayOptions,
        subscriptions: &Subscriptions,
    ) -> Result<Arc<Self>> {
        let (actor, hub_url) = (key.actor, options.hub_url.clone());
        let forwarder = Forwarder::new(hub.clone(), key, hub_url, subscriptions.clone());
        let failed = |error: linchpin::Error| {
            Error::new(ErrorKind::Internal, "gateway_failed", format!("the gateway cannot start: {error}"))
        };
        let principal = actor.subject().to_string();
        let service = Server::new("linchpin", env!("CARGO_PKG_VERSION"))
            .title("Linchpin")
            .keys(StateKeys::new(StateKey::new(&hub.gateway_key())))
            .audience(format!("linchpin gateway {}", actor.tenant()))
            .forward(Arc::new(Receiver(forwarder.clone())))
            .build()
            .map_err(failed)?;
        let mut guard = options.guard.clone();
        guard.allow_any_host(); // the listener of the hub has checked the host
        let endpoint = service.http().path(key.path.as_str()).legacy_sse().origin_guard(guard);
        let http = endpoint
            .max_sessions(MAX_SESSIONS)
            .max_sessions_per_principal(MAX_SESSIONS)
            .principal(move |_| Ok(Some(principal.clone())))
            .into_service()
            .map_err(failed)?;
        Ok(Arc::new(Surface {
            forwarder,
            handle: service.handle(),
            service,
            http,
            generation: AtomicU64::new(NEVER),
            is_abandoned: AtomicBool::new(false),
            refresh_lock: Mutex::default(),
        }))
    }

    /// Returns the MCP server of the surface, for other transports than HTTP.
    pub fn service(&self) -> Service {
        self.service.for_principal(self.forwarder.actor.subject().to_string())
    }

    /// Returns whether the agent of the surface was disabled or removed, so that no client may use the surface.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn http(&self) -> &HttpService {
        &self.http
    }

    /// Builds the definitions again if a stored record has changed, and notifies the clients of changed lists.
    pub async fn refresh(&self) -> Result<()> {
        let registry = self.forwarder.hub.registry();
        if self.generation.load(Ordering::Acquire) == registry.generation() {
            return Ok(());
        }
        let _refreshing = self.refresh_lock.lock().await;
        let generation = registry.generation();
        if self.generation.load(Ordering::Acquire) == generation {
            return Ok(());
        }
        let actor = self.forwarder.actor;
        if let Some(agent) = actor.agent() {
            let found = self.forwarder.hub.identity().act_as_agent(actor, &agent.to_string()).await;
            if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                self.is_abandoned.store(true, Ordering::Release);
                self.http.end_sessions();
            }
        }
        let mut surfaces = match registry.surface(actor).await {
            // A removed agent may use nothing.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            surfaces => surfaces?,
        };
        if let Some(server) = &self.forwarder.server {
            surfaces.retain(|surface| surface.slug.as_str() == server);
            if surfaces.is_empty() && self.generation.load(Ordering::Acquire) == NEVER {
                return Err(Error::not_found("server", shorten(server)));
            }
        }
        let (definitions, names) = definitions(&surfaces, self.forwarder.server.is_none());
        self.forwarder.set_names(names);
        self.handle.set_forwarded(definitions).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "gateway_failed",
                format!("the definitions cannot be set: {error}"),
            )
        })?;
        self.generation.store(generation, Ordering::Release);
        Ok(())
    }

    pub(crate) fn forwarder(&self) -> &Arc<Forwarder> {
        &self.forwarder
    }

    /// Notifies the clients that are subscribed to a resource that it was updated.
    pub(crate) fn resource_updated(&self, updated: &SubscriptionKey) {
        for (public_uri, key) in self.forwarder.subscribed_uris() {
            if key == *updated {
                self.handle.resource_updated(&public_uri);
            }
        }
    }

    pub(crate) fn close(&self) {
        self.http.close_streams();
    }
}
