//! OAuth for clients: what is set up once, and shared by every connection that uses it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::account::Account;
use super::error::AuthError;
use super::identity::{Identity, Method};
use super::key::PrivateKey;
use super::person::{Person, Redirected};
use super::run::AuthStep;
use super::scopes::Scopes;
use super::secret::Secret;
use super::store::{MemoryStore, TokenStore};
use super::{AuthFuture, boxed};
use crate::server::Clock;

/// How a client signs in with OAuth. Clones share what they know: use one for all connections of a program.
///
/// ```no_run
/// # async fn example() -> Result<(), linchpin::ClientError> {
/// use linchpin::Client;
/// use linchpin::auth::{Loopback, OAuth};
///
/// let signed_in = OAuth::new("My program").person(Loopback::new(|url| eprintln!("Sign in: {url}")));
/// let client = Client::http("https://mcp.example.com/mcp").auth(signed_in).connect().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until a client is given it"]
pub struct OAuth {
    pub(super) profile: Arc<Profile>,
    /// What is known of each server.
    pub(super) accounts: Arc<Mutex<HashMap<String, Arc<Account>>>>,
}

/// What is set up.
#[derive(Clone)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) website: Option<String>,
    pub(super) client: Option<Preregistered>,
    /// Where it is registered.
    pub(super) issuer: Option<String>,
    pub(super) document_url: Option<String>,
    pub(super) key: Option<PrivateKey>,
    pub(super) scopes: Option<Scopes>,
    pub(super) grant: Grant,
    pub(super) dpop: bool,
    pub(super) offline_access: bool,
    pub(super) person: Option<Arc<dyn Person>>,
    pub(super) patience: Duration,
    pub(super) store: Arc<dyn TokenStore>,
    pub(super) account: String,
    pub(super) clock: Clock,
    pub(super) on_step: Option<Arc<OnStep>>,
}

type OnStep = dyn Fn(&AuthStep<'_>) + Send + Sync;

/// A client that an authorization server knows already.
#[derive(Clone)]
pub(super) struct Preregistered {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) has_key: bool,
}

impl Preregistered {
    pub(super) fn has_secret(&self) -> bool {
        self.secret.is_some() || self.has_key
    }
}

impl Profile {
    /// A client that is known, with the secret that the settings have now.
    pub(super) fn known_as(&self, mut identity: Identity) -> Identity {
        if let Some(client) = self.client.as_ref().filter(|client| client.id == identity.id) {
            identity.secret.clone_from(&client.secret);
        }
        identity
    }
}

/// Who is behind a request for a token.
#[derive(Clone)]
pub(super) enum Grant {
    Person,
    Client,
    /// The assertion of a workload's platform.
    Workload(Arc<Asserts>),
    Enterprise(Arc<IdentityProvider>),
}

pub(super) type Asserts = dyn Fn(String) -> AuthFuture<'static, Secret> + Send + Sync;

/// The identity provider of an organisation, where people are signed in already.
pub struct IdentityProvider {
    pub(super) token_endpoint: String,
    client_id: String,
    client_secret: Option<Secret>,
    pub(super) id_token: Box<dyn Fn() -> AuthFuture<'static, Secret> + Send + Sync>,
}

impl IdentityProvider {
    /// The provider's token endpoint, the client's id there, and where the identity token of the person who is
    /// signed in comes from.
    pub fn new<F, Fut>(token_endpoint: impl Into<String>, client_id: impl Into<String>, id_token: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AuthError>> + Send + 'static,
    {
        IdentityProvider {
            token_endpoint: token_endpoint.into(),
            client_id: client_id.into(),
            client_secret: None,
            id_token: Box::new(move || boxed(id_token())),
        }
    }

    /// The client's secret at the provider.
    #[must_use]
    pub fn client_secret(mut self, secret: impl Into<Secret>) -> Self {
        self.client_secret = Some(secret.into());
        self
    }

    pub(super) fn identity(&self) -> Identity {
        let method = if self.client_secret.is_some() { Method::Post } else { Method::None };
        Identity::new(&self.client_id, self.client_secret.clone(), method)
    }
}

impl OAuth {
    fn with_grant(name: String, grant: Grant) -> Self {
        let profile = Profile {
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
            person: None,
            patience: Duration::from_mins(10),
            store: Arc::new(MemoryStore::default()),
            account: String::new(),
            clock: Clock::default(),
            on_step: None,
        };
        OAuth { profile: Arc::new(profile), accounts: Arc::default() }
    }

    fn set(mut self, change: impl FnOnce(&mut Profile)) -> Self {
        change(Arc::make_mut(&mut self.profile));
        self.accounts = Arc::default();
        self
    }

    /// A person signs in, to a program of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_grant(name.into(), Grant::Person)
    }

    /// The client speaks for itself, with a secret that the authorization server gave it.
    pub fn client_credentials(id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        Self::with_grant(String::new(), Grant::Client).client_secret(id, secret)
    }

    /// The client speaks for itself, with a key that the authorization server knows.
    pub fn private_key_jwt(id: impl Into<String>, key: PrivateKey) -> Self {
        Self::with_grant(String::new(), Grant::Client).client_key(id, key)
    }

    /// A workload whose platform says who it is (workload identity federation): `assertion` gives a signed token
    /// that is made out to the authorization server whose name it is told.
    pub fn workload<F, Fut>(client_id: impl Into<String>, assertion: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AuthError>> + Send + 'static,
    {
        let grant = Grant::Workload(Arc::new(move |audience| boxed(assertion(audience))));
        Self::with_grant(String::new(), grant).client(client_id)
    }

    /// A person who is signed in to the identity provider of their organisation, which decides what they may use
    /// (enterprise-managed authorization). The client must be known to the authorization server: see [`Self::client`]
    /// and [`Self::client_secret`].
    pub fn enterprise(provider: IdentityProvider) -> Self {
        Self::with_grant(String::new(), Grant::Enterprise(Arc::new(provider)))
    }

    /// The client is registered already, and has no secret.
    pub fn client(self, id: impl Into<String>) -> Self {
        let client = Preregistered { id: id.into(), secret: None, has_key: false };
        self.set(|profile| profile.client = Some(client))
    }

    /// The client is registered already, with a secret.
    pub fn client_secret(self, id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        let client = Preregistered { id: id.into(), secret: Some(secret.into()), has_key: false };
        self.set(|profile| profile.client = Some(client))
    }

    /// The client is registered already, with a key.
    pub fn client_key(self, id: impl Into<String>, key: PrivateKey) -> Self {
        let client = Preregistered { id: id.into(), secret: None, has_key: true };
        self.set(|profile| (profile.client, profile.key) = (Some(client), Some(key)))
    }

    /// The authorization server at which the client is registered: its secret goes nowhere else. Without it the first
    /// one that the server names is trusted with the secret, and no other after that.
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        self.set(|profile| profile.issuer = Some(issuer.into()))
    }

    /// Where a document about the client is, which is then its id for every authorization server that reads such.
    pub fn client_metadata_url(self, url: impl Into<String>) -> Self {
        self.set(|profile| profile.document_url = Some(url.into()))
    }

    /// The program's website, for people who are asked whether to let it in.
    pub fn website(self, url: impl Into<String>) -> Self {
        self.set(|profile| profile.website = Some(url.into()))
    }

    /// How a person is asked to sign in: [`super::Loopback`] for programs on a person's machine.
    pub fn person(self, person: impl Person) -> Self {
        self.set(|profile| profile.person = Some(Arc::new(person)))
    }

    /// People come back to a URL of the host's own: `visit` leads somebody to a URL and gives the one they came back
    /// to.
    pub fn redirect<F, Fut>(self, redirect_uri: impl Into<String>, visit: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, AuthError>> + Send + 'static,
    {
        self.person(Redirected::new(redirect_uri.into(), visit))
    }

    /// How long a person may take to sign in; 10 minutes when nothing is said.
    pub fn patience(self, patience: Duration) -> Self {
        self.set(|profile| profile.patience = patience)
    }

    /// Asks for these scopes, whatever the server says, and for those that it names for one operation.
    pub fn scopes<S: AsRef<str>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.set(|profile| profile.scopes = Some(scopes.into_iter().collect()))
    }

    /// Binds tokens to a key wherever the authorization server can do that, not only where the server wants it.
    pub fn dpop(self) -> Self {
        self.set(|profile| profile.dpop = true)
    }

    /// Does not ask to be let in while nobody is there: the person signs in again when the token runs out.
    pub fn without_offline_access(self) -> Self {
        self.set(|profile| profile.offline_access = false)
    }

    /// Where tokens are kept; in memory when nothing is said.
    pub fn store(self, store: impl TokenStore) -> Self {
        self.set(|profile| profile.store = Arc::new(store))
    }

    /// Whose sign-ins these are, where a store has those of several.
    pub fn account(self, account: impl Into<String>) -> Self {
        self.set(|profile| profile.account = account.into())
    }

    /// Is told each step of signing in, with nothing secret in it.
    pub fn on_step(self, told: impl Fn(&AuthStep<'_>) + Send + Sync + 'static) -> Self {
        self.set(|profile| profile.on_step = Some(Arc::new(told)))
    }

    /// Tells the time, in place of the system's clock.
    pub fn clock(self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.set(|profile| profile.clock = Clock::new(now))
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("name", &self.profile.name).finish_non_exhaustive()
    }
}
