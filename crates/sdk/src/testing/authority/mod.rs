//! Test authorization server and protected endpoint on this machine, for tests of clients that sign in. It
//! conforms to the specifications by default.
//!
//! It implements OAuth 2.1 as MCP requires it, acts as the user in the browser, and records every request. A
//! [`Misbehaviour`] makes it misbehave in one way. It shares no code for tokens, forms and signatures with the client: a
//! bug shared by both sides would go unnoticed.
//!
//! ```
//! use linchpin::testing::authority::{Authority, Misbehaviour};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> linchpin::Result {
//! let authority = Authority::start(Authority::conforming().with(Misbehaviour::IssuerWrong)).await?;
//! assert!(authority.mcp_url().starts_with("http://127.0.0.1:"));
//! assert!(authority.observations().requests.is_empty());
//! # Ok(())
//! # }
//! ```

mod behaviour;
mod browser;
mod clients;
mod dpop;
mod endpoints;
mod form;
mod http;
mod jwt;
mod misbehaviour;
mod observed;
mod shared;
mod url_field;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::oneshot;

pub use behaviour::Behaviour;
pub use browser::Redirect;
pub use misbehaviour::Misbehaviour;
pub use observed::{AuthorityHost, Observations, RecordedRequest};
pub use url_field::UrlField;

use self::shared::{AuthorityShared, IDP_CLIENT, RegisteredClient, RequiredClientAuth, TestIssuer};
use crate::Result;
use crate::server::random_id;

/// Lifetime of assertions that the test authority signs for tests, in seconds.
const LIFETIME: u64 = 3_600;

/// Running test authority: an authorization server and the endpoint that it protects. It stops when it is dropped.
pub struct Authority {
    shared: Arc<AuthorityShared>,
    _shutdown: oneshot::Sender<()>,
}

/// Client that is preregistered at the test authority, one per authentication method. All of them may use any loopback
/// redirect URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownClient {
    /// Client without client authentication (`none`).
    Public,
    /// Secret in a header: `client_secret_basic`. The identity provider issues its assertions for this client.
    Basic,
    /// Secret in the form: `client_secret_post`.
    Post,
    /// Signed assertion with ES256: `private_key_jwt`.
    Signed,
}

impl KnownClient {
    /// Returns the `client_id` with which this client is preregistered.
    pub fn id(self) -> &'static str {
        match self {
            KnownClient::Public => "public-client",
            KnownClient::Basic => "basic-client",
            KnownClient::Post => "post-client",
            KnownClient::Signed => "signed-client",
        }
    }
}

impl Authority {
    /// Returns the behaviour of a fully conforming authority.
    pub fn conforming() -> Behaviour {
        Behaviour::conforming()
    }

    /// Starts the simulated servers of the authority on free ports.
    pub async fn start(behaviour: Behaviour) -> Result<Self> {
        let make =
            |addresses| AuthorityShared::new(addresses, endpoints::protected_resource::server()?, behaviour);
        let (shared, end) = http::start(make).await?;
        let mut state = shared.lock();
        for issuer in [TestIssuer::Tenant, TestIssuer::Resource] {
            let client_proofs = [
                (KnownClient::Public, RequiredClientAuth::None),
                (KnownClient::Basic, RequiredClientAuth::Basic(secret(&shared, KnownClient::Basic))),
                (KnownClient::Post, RequiredClientAuth::Post(secret(&shared, KnownClient::Post))),
                (KnownClient::Signed, RequiredClientAuth::Signed(shared.client_key.jwk())),
            ];
            for (known_client, proof) in client_proofs {
                let client = RegisteredClient { proof, redirect_uris: Vec::new() };
                state.clients.insert((issuer, known_client.id().to_owned()), client);
            }
        }
        state.secrets.extend(
            [KnownClient::Basic, KnownClient::Post].map(|known_client| secret(&shared, known_client)),
        );
        drop(state);
        Ok(Authority { shared, _shutdown: end })
    }

    /// Replaces the behaviour of the running test authority. Issued codes and tokens remain.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.shared.lock().behaviour = behaviour;
    }

    /// Returns the URL of the protected MCP endpoint. It has the tools `greet` and `write`; `write` requires an
    /// additional scope.
    pub fn mcp_url(&self) -> String {
        self.shared.mcp_url()
    }

    /// Returns the issuer URL of the simulated authorization server that clients use first.
    pub fn issuer(&self) -> String {
        self.shared.issuer(TestIssuer::Tenant)
    }

    /// Returns the URL of the canary server, which clients must never connect to.
    pub fn canary(&self) -> String {
        self.shared.canary_url.clone()
    }

    /// Returns the issuer URL of the simulated identity provider. Its token endpoint is `{}/token`.
    pub fn idp(&self) -> String {
        self.shared.idp()
    }

    /// Returns the client secret of a preregistered test client.
    pub fn secret(&self, client: KnownClient) -> String {
        secret(&self.shared, client)
    }

    /// Returns the private key of [`KnownClient::Signed`], as PKCS #8 in PEM.
    pub fn client_key(&self) -> String {
        self.shared.client_key.pem()
    }

    /// Opens an authorization URL as an approving user, and returns the redirect. The redirect target is not
    /// requested yet: [`Redirect::follow`] does that.
    pub async fn approve(&self, authorization_url: &str) -> Result<Redirect> {
        browser::approve(authorization_url).await
    }

    /// Returns a signed ID token of the simulated identity provider for a logged-in user. Its client is `idp-client`.
    pub fn id_token(&self) -> Result<String> {
        let claims = json!({ "iss": self.idp(), "sub": "person@example.com", "aud": IDP_CLIENT });
        self.sign("JWT", claims)
    }

    /// Returns a signed token that identifies a workload, to exchange at the simulated authorization server.
    pub fn workload_token(&self) -> Result<String> {
        let claims = json!({ "iss": self.shared.workload(), "sub": "a-program", "aud": self.issuer() });
        self.sign("JWT", claims)
    }

    /// Signs a JWT with these claims and the key of the test authority. It is valid for an hour unless `exp` is set.
    pub fn sign(&self, kind: &str, mut claims: Value) -> Result<String> {
        let mut state = self.shared.lock();
        let now = state.now().as_secs();
        for (name, value) in
            [("iat", json!(now)), ("exp", json!(now + LIFETIME)), ("jti", json!(random_id()))]
        {
            if claims.get(name).is_none() {
                claims[name] = value;
            }
        }
        let token = self.shared.key.sign(kind, &claims)?;
        state.record_secret(Some(&token));
        Ok(token)
    }

    /// Returns the public key of the authority as a JWK.
    pub fn public_key(&self) -> Value {
        self.shared.key.jwk()
    }

    /// Returns the requests that the simulated servers received, and counters of registrations, tokens and revocations.
    pub fn observations(&self) -> Observations {
        self.shared.lock().observed.clone()
    }

    /// Waits until the requests and counters of the test authority satisfy a condition.
    pub async fn wait_until(&self, condition: impl Fn(&Observations) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if condition(&self.shared.lock().observed) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the socket address of the simulated protected server or authorization server.
    pub fn address(&self, host: AuthorityHost) -> SocketAddr {
        let [resource, authority] = self.shared.addresses;
        if host == AuthorityHost::Resource { resource } else { authority }
    }

    /// Returns all secrets that were issued or received: client secrets, codes and their verifiers, tokens,
    /// assertions.
    pub fn secrets(&self) -> Vec<String> {
        self.shared.lock().secrets.clone()
    }

    /// Replaces the addresses of the simulated servers, which differ in each run, by names: `MCP` for the protected
    /// endpoint, `ISSUER`, `SERVER` and `AUTHORITY` for the origins of both servers, and `CANARY`.
    pub fn mask_addresses(&self, text: &str) -> String {
        let origin = |host| format!("http://{}", self.address(host));
        let names = [
            (self.mcp_url(), "MCP"),
            (self.issuer(), "ISSUER"),
            (origin(AuthorityHost::Resource), "SERVER"),
            (origin(AuthorityHost::Authority), "AUTHORITY"),
            (self.canary(), "CANARY"),
        ];
        names.iter().fold(text.to_owned(), |text, (url, name)| text.replace(url, name))
    }

    /// Advances the clock of the authority.
    pub fn advance(&self, time: Duration) {
        self.shared.lock().clock_offset += time;
    }

    /// Returns the simulated clock of the authority, for a client that should use the same time.
    pub fn clock(&self) -> impl Fn() -> SystemTime + Send + Sync + Clone + use<> {
        let shared = self.shared.clone();
        move || UNIX_EPOCH + shared.lock().now()
    }

    /// Expires all access tokens, regardless of their lifetime. Refresh tokens remain valid.
    pub fn expire_tokens(&self) {
        self.shared.lock().access_tokens.values_mut().for_each(|access| access.end = None);
    }

    /// Revokes all grants of the test authority.
    pub fn revoke(&self) {
        self.shared.lock().families.fill(true);
    }

    /// Changes the `DPoP` nonce, so that clients have to use a new one.
    pub fn rotate_nonce(&self) {
        self.shared.lock().nonce = random_id();
    }
}

/// Derives the secret of a preregistered client from the key of this test authority, so that each authority has
/// different ones.
fn secret(shared: &AuthorityShared, client: KnownClient) -> String {
    let key = shared.client_key.pem();
    jwt::digest(&format!("{} {key}", client.id()))
}
