//! OAuth client: its configuration and the tokens of each server, shared by all connections that use it.

pub(super) mod account;
pub(super) mod authorize;
pub(super) mod detached;
pub(super) mod identity_provider;
pub(super) mod persist;
pub(super) mod refresh;
pub(super) mod revocation;
pub(super) mod runner;
pub(super) mod waiters;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use self::account::Account;
use self::identity_provider::IdentityProvider;
use self::runner::AuthStep;
use super::error::AuthError;
use super::flow::client_identity::ClientIdentity;
use super::flow::private_key::PrivateKey;
use super::redirect::{CustomRedirect, RedirectHandler};
use super::scopes::Scopes;
use super::secret::Secret;
use super::store::{MemoryStore, TokenStore};
use super::{AuthFuture, boxed};
use crate::server::Clock;

/// OAuth client that authorizes the requests of MCP clients: signs users in, and stores and refreshes tokens. Clones
/// share their tokens: use one instance for all connections of an application.
///
/// ```no_run
/// # async fn example() -> Result<(), linchpin::ClientError> {
/// use linchpin::Client;
/// use linchpin::auth::{Loopback, OAuth};
///
/// let signed_in = OAuth::new("My program").redirect_handler(Loopback::new(|url| eprintln!("Sign in: {url}")));
/// let client = Client::http("https://mcp.example.com/mcp").auth(signed_in).connect().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "an `OAuth` does nothing until it is passed to a client"]
pub struct OAuth {
    pub(super) config: Arc<OAuthConfig>,
    /// Token state of each server, by store key.
    pub(super) accounts: Arc<Mutex<HashMap<String, Arc<Account>>>>,
}

/// Configuration of an OAuth client: registration, scopes, grant type and stores.
#[derive(Clone)]
pub(super) struct OAuthConfig {
    pub(super) name: String,
    pub(super) website: Option<String>,
    pub(super) client: Option<PreregisteredClient>,
    /// Issuer at which the preregistered client is registered.
    pub(super) issuer: Option<String>,
    pub(super) document_url: Option<String>,
    pub(super) key: Option<PrivateKey>,
    pub(super) scopes: Option<Scopes>,
    pub(super) grant: GrantType,
    pub(super) dpop: bool,
    pub(super) offline_access: bool,
    pub(super) redirect_handler: Option<Arc<dyn RedirectHandler>>,
    pub(super) sign_in_timeout: Duration,
    pub(super) store: Arc<dyn TokenStore>,
    pub(super) account: String,
    pub(super) clock: Clock,
    pub(super) on_step: Option<Arc<OnStep>>,
}

type OnStep = dyn Fn(&AuthStep<'_>) + Send + Sync;

/// OAuth client id and secret that were registered at an authorization server out of band.
#[derive(Clone)]
pub(super) struct PreregisteredClient {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) has_key: bool,
}

impl PreregisteredClient {
    pub(super) fn has_secret(&self) -> bool {
        self.secret.is_some() || self.has_key
    }
}

impl OAuthConfig {
    /// Returns the client identity with the currently configured secret, if it is the preregistered client.
    pub(super) fn with_current_secret(&self, mut identity: ClientIdentity) -> ClientIdentity {
        if let Some(client) = self.client.as_ref().filter(|client| client.id == identity.id) {
            identity.secret.clone_from(&client.secret);
        }
        identity
    }
}

/// OAuth grant type with which a client gets tokens.
#[derive(Clone)]
pub(super) enum GrantType {
    AuthorizationCode,
    ClientCredentials,
    /// Assertion that a workload platform issues to the program.
    Workload(Arc<AssertionProvider>),
    Enterprise(Arc<IdentityProvider>),
}

pub(super) type AssertionProvider = dyn Fn(String) -> AuthFuture<'static, Secret> + Send + Sync;

impl OAuth {
    fn with_grant(name: String, grant: GrantType) -> Self {
        let profile = OAuthConfig {
            name,
            website: None,
            client: None,
            issuer: None,
            document_url: None,
            key: None,
            scopes: None,
            grant,
            dpop: false,
            offline_access: true,
            redirect_handler: None,
            sign_in_timeout: Duration::from_mins(10),
            store: Arc::new(MemoryStore::default()),
            account: String::new(),
            clock: Clock::default(),
            on_step: None,
        };
        OAuth { config: Arc::new(profile), accounts: Arc::default() }
    }

    fn set(mut self, change: impl FnOnce(&mut OAuthConfig)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self.accounts = Arc::default();
        self
    }

    /// Creates a client for the authorization-code grant: a user signs in. `name` is the client name shown to the user.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_grant(name.into(), GrantType::AuthorizationCode)
    }

    /// Creates a client for the client-credentials grant with a client secret.
    pub fn client_credentials(id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        Self::with_grant(String::new(), GrantType::ClientCredentials).client_secret(id, secret)
    }

    /// Creates a client for the client-credentials grant with a private key that the authorization server knows.
    pub fn private_key_jwt(id: impl Into<String>, key: PrivateKey) -> Self {
        Self::with_grant(String::new(), GrantType::ClientCredentials).client_key(id, key)
    }

    /// Creates a client for workload identity federation: `assertion` returns a signed token of the platform for the
    /// authorization server that it is called with.
    pub fn workload<F, Fut>(client_id: impl Into<String>, assertion: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AuthError>> + Send + 'static,
    {
        let grant = GrantType::Workload(Arc::new(move |audience| boxed(assertion(audience))));
        Self::with_grant(String::new(), grant).client(client_id)
    }

    /// Creates a client for enterprise-managed authorization: the user's organisation decides, through its identity
    /// provider, what the user may use. The client must be registered at the authorization server: see [`Self::client`]
    /// and [`Self::client_secret`].
    pub fn enterprise(provider: IdentityProvider) -> Self {
        Self::with_grant(String::new(), GrantType::Enterprise(Arc::new(provider)))
    }

    /// Sets a preregistered client id without a secret.
    pub fn client(self, id: impl Into<String>) -> Self {
        let client = PreregisteredClient { id: id.into(), secret: None, has_key: false };
        self.set(|profile| profile.client = Some(client))
    }

    /// Sets a preregistered client id with a secret.
    pub fn client_secret(self, id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        let client = PreregisteredClient { id: id.into(), secret: Some(secret.into()), has_key: false };
        self.set(|profile| profile.client = Some(client))
    }

    /// Sets a preregistered client id with a private key.
    pub fn client_key(self, id: impl Into<String>, key: PrivateKey) -> Self {
        let client = PreregisteredClient { id: id.into(), secret: None, has_key: true };
        self.set(|profile| (profile.client, profile.key) = (Some(client), Some(key)))
    }

    /// Sets the authorization server at which the client is registered; the client secret is sent to no other. Default:
    /// the first one that the server names receives the secret, and no other after it.
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        self.set(|profile| profile.issuer = Some(issuer.into()))
    }

    /// Sets the URL of the client ID metadata document, which is the client id for authorization servers that support
    /// it.
    pub fn client_metadata_url(self, url: impl Into<String>) -> Self {
        self.set(|profile| profile.document_url = Some(url.into()))
    }

    /// Sets the website of the application, shown on the consent page.
    pub fn website(self, url: impl Into<String>) -> Self {
        self.set(|profile| profile.website = Some(url.into()))
    }

    /// Sets the redirect handler that sends a user to the authorization URL: [`super::Loopback`] for applications on
    /// the user's machine.
    pub fn redirect_handler(self, handler: impl RedirectHandler) -> Self {
        self.set(|profile| profile.redirect_handler = Some(Arc::new(handler)))
    }

    /// Sets a redirect handler for a redirect URI of the application: the handler sends the user to a URL and returns
    /// the URL of the redirect back.
    pub fn redirect<F, Fut>(self, redirect_uri: impl Into<String>, visit: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, AuthError>> + Send + 'static,
    {
        self.redirect_handler(CustomRedirect::new(redirect_uri.into(), visit))
    }

    /// Sets how long a user may take to sign in. Default: 10 min.
    pub fn sign_in_timeout(self, timeout: Duration) -> Self {
        self.set(|profile| profile.sign_in_timeout = timeout)
    }

    /// Sets the OAuth scopes to request, replacing those that the server advertises. Scopes of a challenge are added.
    pub fn scopes<S: AsRef<str>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.set(|profile| profile.scopes = Some(scopes.into_iter().collect()))
    }

    /// Requests key-bound tokens wherever the authorization server supports them, not only where the server requires
    /// them.
    pub fn dpop(self) -> Self {
        self.set(|profile| profile.dpop = true)
    }

    /// Does not request `offline_access`: the user signs in again when the token expires.
    pub fn without_offline_access(self) -> Self {
        self.set(|profile| profile.offline_access = false)
    }

    /// Sets the token store, which persists tokens and client registrations. Default: [`MemoryStore`].
    pub fn store(self, store: impl TokenStore) -> Self {
        self.set(|profile| profile.store = Arc::new(store))
    }

    /// Sets the account name, if a store holds tokens of several accounts.
    pub fn account(self, account: impl Into<String>) -> Self {
        self.set(|profile| profile.account = account.into())
    }

    /// Sets a callback for each step of an OAuth flow: HTTP requests, and redirects of the user. Steps contain no
    /// secrets.
    pub fn on_step(self, callback: impl Fn(&AuthStep<'_>) + Send + Sync + 'static) -> Self {
        self.set(|profile| profile.on_step = Some(Arc::new(callback)))
    }

    /// Sets the source of the current time, for token expiry, `DPoP` proofs and client assertions. Default: the system
    /// clock.
    pub fn clock(self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.set(|profile| profile.clock = Clock::new(now))
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("name", &self.config.name).finish_non_exhaustive()
    }
}
