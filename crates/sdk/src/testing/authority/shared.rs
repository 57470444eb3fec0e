//! Shared state of the servers of the authority: addresses, clients, issued codes and tokens.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::behaviour::Behaviour;
use super::jwt::Key;
use super::observed::Seen;
use crate::HttpService;
use crate::server::unguessable;

/// Supported scopes: the first one is enough to connect, the second one permits everything.
pub(super) const SCOPES: [&str; 3] = ["read", "write", "offline_access"];
/// Client of the identity provider.
pub(super) const IDP_CLIENT: &str = "idp-client";

/// One of the simulated authorization servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Issuer {
    /// The default issuer. Its URL has a path, which clients often handle incorrectly.
    Tenant,
    /// The issuer that replaces it.
    Moved,
    /// The server of the endpoint, if it is its own authority.
    Resource,
}

impl Issuer {
    pub(super) const ALL: [Issuer; 3] = [Issuer::Tenant, Issuer::Moved, Issuer::Resource];

    pub(super) fn path(self) -> &'static str {
        match self {
            Issuer::Tenant => "/tenant",
            Issuer::Moved => "/moved",
            Issuer::Resource => "",
        }
    }
}

/// Client authentication.
#[derive(Debug, Clone)]
pub(super) enum Proof {
    None,
    Basic(String),
    Post(String),
    Signed(Value),
}

#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) proof: Proof,
    /// Allowed redirect URIs; any loopback URI if empty.
    pub(super) redirect_uris: Vec<String>,
}

/// A grant.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) issuer: Issuer,
    pub(super) client: String,
    pub(super) scopes: Vec<String>,
    pub(super) resource: String,
    /// Token family: its tokens are revoked together.
    pub(super) family: usize,
    /// Thumbprint of the key that it is bound to.
    pub(super) key: Option<String>,
}

pub(super) struct Code {
    pub(super) grant: Grant,
    pub(super) redirect_uri: String,
    pub(super) challenge: String,
    pub(super) is_used: bool,
}

pub(super) struct Access {
    pub(super) grant: Grant,
    pub(super) end: Option<Duration>,
}

pub(super) struct Refresh {
    pub(super) grant: Grant,
    pub(super) is_spent: bool,
}

pub(super) struct Shared {
    /// Announced origins.
    pub(super) resource: String,
    pub(super) authority: String,
    pub(super) canary: String,
    /// Real addresses of the servers.
    pub(super) addresses: [SocketAddr; 2],
    /// Notified on each request.
    pub(super) news: tokio::sync::Notify,
    pub(super) mcp: HttpService,
    /// Signing key of the authority, the identity provider and the workload platform.
    pub(super) key: Key,
    /// Key of the client that signs.
    pub(super) client_key: Key,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) behaviour: Behaviour,
    pub(super) seen: Seen,
    pub(super) clients: HashMap<(Issuer, String), Client>,
    pub(super) codes: HashMap<String, Code>,
    pub(super) access: HashMap<String, Access>,
    pub(super) refresh: HashMap<String, Refresh>,
    /// Whether each family is revoked.
    pub(super) families: Vec<bool>,
    /// Ids of used assertions and proofs.
    pub(super) used: HashSet<String>,
    pub(super) nonce: String,
    /// Whether a refresh was already rejected with 503.
    pub(super) was_unavailable: bool,
    /// Secrets that must not appear anywhere else.
    pub(super) secrets: Vec<String>,
    /// Offset of the clock.
    pub(super) later: Duration,
}

impl Shared {
    pub(super) fn new(
        [resource, authority, canary]: super::http::Addresses,
        mcp: HttpService,
        behaviour: Behaviour,
    ) -> crate::Result<Self> {
        let origin = |address: SocketAddr| format!("http://{address}");
        let origins = [origin(resource), origin(authority)];
        let [own_resource, own_authority] = behaviour.origins.clone().unwrap_or(origins);
        let state = State {
            behaviour,
            seen: Seen::default(),
            clients: HashMap::new(),
            codes: HashMap::new(),
            access: HashMap::new(),
            refresh: HashMap::new(),
            families: Vec::new(),
            used: HashSet::new(),
            nonce: unguessable(),
            was_unavailable: false,
            secrets: Vec::new(),
            later: Duration::ZERO,
        };
        Ok(Shared {
            resource: own_resource,
            authority: own_authority,
            canary: origin(canary),
            addresses: [resource, authority],
            news: tokio::sync::Notify::new(),
            mcp,
            key: Key::generate()?,
            client_key: Key::generate()?,
            state: Mutex::new(state),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.resource)
    }

    pub(super) fn issuer(&self, issuer: Issuer) -> String {
        let origin = if issuer == Issuer::Resource { &self.resource } else { &self.authority };
        format!("{origin}{}", issuer.path())
    }

    pub(super) fn idp(&self) -> String {
        format!("{}/idp", self.authority)
    }

    pub(super) fn workload(&self) -> String {
        format!("{}/workload", self.authority)
    }
}

impl State {
    /// Creates a random secret, and records it.
    pub(super) fn secret(&mut self) -> String {
        let secret = unguessable();
        self.secrets.push(secret.clone());
        secret
    }

    /// Records a secret.
    pub(super) fn keep_secret(&mut self, secret: Option<&str>) {
        self.secrets.extend(secret.filter(|secret| !secret.is_empty()).map(str::to_owned));
    }

    pub(super) fn family(&mut self) -> usize {
        self.families.push(false);
        self.families.len() - 1
    }

    pub(super) fn is_revoked(&self, family: usize) -> bool {
        self.families.get(family).copied().unwrap_or(true)
    }

    /// Records the reuse of a spent code or token, and revokes its family: the tokens may be stolen.
    pub(super) fn reuse(&mut self, family: usize) {
        self.seen.reuses += 1;
        if let Some(revoked) = self.families.get_mut(family) {
            self.seen.revoked_families += usize::from(!*revoked);
            *revoked = true;
        }
    }

    /// Returns the time since 1970.
    #[expect(clippy::disallowed_methods, reason = "base of the clock that tests can advance")]
    pub(super) fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + self.later
    }
}
