//! State that the HTTP servers of the test authority share: addresses, clients, issued codes and tokens.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::behaviour::Behaviour;
use super::jwt::TestKey;
use super::observed::Observations;
use crate::HttpService;
use crate::server::random_id;

/// Scopes that the test authority supports: `write` for calls of the tool `write`, `read` for all other requests, and
/// `offline_access` for a refresh token.
pub(super) const SCOPES: [&str; 3] = ["read", "write", "offline_access"];
/// Client id for which the test identity provider issues ID tokens.
pub(super) const IDP_CLIENT: &str = "idp-client";

/// Issuer that the test authority simulates: the default one, the one that replaces it after a move, or the protected
/// MCP server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TestIssuer {
    /// The issuer that clients use by default. Its URL has a path, which clients often handle incorrectly.
    Tenant,
    /// The issuer that replaces the default one after a move.
    Replacement,
    /// The protected server itself, if it is its own authorization server.
    Resource,
}

impl TestIssuer {
    pub(super) const ALL: [TestIssuer; 3] =
        [TestIssuer::Tenant, TestIssuer::Replacement, TestIssuer::Resource];

    pub(super) fn path(self) -> &'static str {
        match self {
            TestIssuer::Tenant => "/tenant",
            TestIssuer::Replacement => "/moved",
            TestIssuer::Resource => "",
        }
    }
}

/// How a registered client must authenticate at the test authority; strings are client secrets.
#[derive(Debug, Clone)]
pub(super) enum RequiredClientAuth {
    None,
    Basic(String),
    Post(String),
    Signed(Value),
}

#[derive(Debug, Clone)]
pub(super) struct RegisteredClient {
    pub(super) proof: RequiredClientAuth,
    /// Allowed redirect URIs; any loopback URI if empty.
    pub(super) redirect_uris: Vec<String>,
}

/// What a code or token of the test authority permits, to which client, at which resource.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) issuer: TestIssuer,
    pub(super) client: String,
    pub(super) scopes: Vec<String>,
    pub(super) resource: String,
    /// Number of the token family: its tokens are revoked together.
    pub(super) family: usize,
    /// Thumbprint of the `DPoP` key that the grant is bound to, if any.
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

pub(super) struct AuthorityShared {
    /// Origin of the protected MCP endpoint, as announced in metadata.
    pub(super) resource: String,
    /// Origin of the authorization server, as announced in metadata.
    pub(super) authority: String,
    /// Origin that clients must never connect to.
    pub(super) canary_url: String,
    /// Socket addresses of the simulated protected server and authorization server.
    pub(super) addresses: [SocketAddr; 2],
    /// Signal that is set when the authority has received a request.
    pub(super) changed: tokio::sync::Notify,
    pub(super) mcp: HttpService,
    /// Signing key of the simulated authorization server, identity provider and workload platform.
    pub(super) key: TestKey,
    /// Key of the client that authenticates with signed assertions.
    pub(super) client_key: TestKey,
    state: Mutex<AuthorityState>,
}

pub(super) struct AuthorityState {
    pub(super) behaviour: Behaviour,
    pub(super) observed: Observations,
    pub(super) clients: HashMap<(TestIssuer, String), RegisteredClient>,
    pub(super) codes: HashMap<String, Code>,
    pub(super) access_tokens: HashMap<String, Access>,
    pub(super) refresh_tokens: HashMap<String, Refresh>,
    /// Whether each token family is revoked, by family number.
    pub(super) families: Vec<bool>,
    /// Ids of assertions (of clients and of grants) and `DPoP` proofs that were already used.
    pub(super) used_ids: HashSet<String>,
    pub(super) nonce: String,
    /// Whether a refresh was already rejected with 503, which `RefreshUnavailable` does once.
    pub(super) has_failed_refresh: bool,
    /// Secrets that were issued or received, so that tests can check that logs and errors do not contain them.
    pub(super) secrets: Vec<String>,
    /// Added to the system time, so that tests can let tokens expire.
    pub(super) clock_offset: Duration,
}

impl AuthorityShared {
    pub(super) fn new(
        [resource, authority, canary]: super::http::Addresses,
        mcp: HttpService,
        behaviour: Behaviour,
    ) -> crate::Result<Self> {
        let origin = |address: SocketAddr| format!("http://{address}");
        let origins = [origin(resource), origin(authority)];
        let [own_resource, own_authority] = behaviour.origins.clone().unwrap_or(origins);
        let state = AuthorityState {
            behaviour,
            observed: Observations::default(),
            clients: HashMap::new(),
            codes: HashMap::new(),
            access_tokens: HashMap::new(),
            refresh_tokens: HashMap::new(),
            families: Vec::new(),
            used_ids: HashSet::new(),
            nonce: random_id(),
            has_failed_refresh: false,
            secrets: Vec::new(),
            clock_offset: Duration::ZERO,
        };
        Ok(AuthorityShared {
            resource: own_resource,
            authority: own_authority,
            canary_url: origin(canary),
            addresses: [resource, authority],
            changed: tokio::sync::Notify::new(),
            mcp,
            key: TestKey::generate()?,
            client_key: TestKey::generate()?,
            state: Mutex::new(state),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, AuthorityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.resource)
    }

    pub(super) fn issuer(&self, issuer: TestIssuer) -> String {
        let origin = if issuer == TestIssuer::Resource { &self.resource } else { &self.authority };
        format!("{origin}{}", issuer.path())
    }

    pub(super) fn idp(&self) -> String {
        format!("{}/idp", self.authority)
    }

    pub(super) fn workload(&self) -> String {
        format!("{}/workload", self.authority)
    }
}

impl AuthorityState {
    /// Creates a random secret, and records it so that tests can search for it.
    pub(super) fn new_secret(&mut self) -> String {
        let secret = random_id();
        self.secrets.push(secret.clone());
        secret
    }

    /// Records a secret that was issued or received, so that tests can check that it is not leaked.
    pub(super) fn record_secret(&mut self, secret: Option<&str>) {
        self.secrets.extend(secret.filter(|secret| !secret.is_empty()).map(str::to_owned));
    }

    pub(super) fn new_family(&mut self) -> usize {
        self.families.push(false);
        self.families.len() - 1
    }

    pub(super) fn is_revoked(&self, family: usize) -> bool {
        self.families.get(family).copied().unwrap_or(true)
    }

    /// Records the reuse of a spent code or token, and revokes its family: the tokens may be stolen.
    pub(super) fn record_reuse(&mut self, family: usize) {
        self.observed.reuses += 1;
        if let Some(revoked) = self.families.get_mut(family) {
            self.observed.revoked_families += usize::from(!*revoked);
            *revoked = true;
        }
    }

    /// Returns the time of the simulated clock since 1970.
    #[expect(clippy::disallowed_methods, reason = "base of the clock that tests can advance")]
    pub(super) fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + self.clock_offset
    }
}
