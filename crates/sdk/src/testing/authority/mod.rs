//! An authorization server and a protected endpoint on this machine, honest unless told otherwise: what clients that
//! sign in are tested against.
//!
//! It speaks OAuth 2.1 as the protocol wants it, plays the person in the browser, and remembers every request. A
//! [`Switch`] makes it misbehave in one way. It shares no code for tokens, forms and signatures with the client: what
//! both got wrong in the same way would look right.
//!
//! ```
//! use linchpin::testing::authority::{Authority, Switch};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> linchpin::Result {
//! let authority = Authority::start(Authority::honest().with(Switch::IssuerWrong)).await?;
//! assert!(authority.mcp_url().starts_with("http://127.0.0.1:"));
//! assert!(authority.seen().requests.is_empty());
//! # Ok(())
//! # }
//! ```

mod authorize;
mod behaviour;
mod browser;
mod clients;
mod dpop;
mod form;
mod idp;
mod issue;
mod jwt;
mod learned;
mod metadata;
mod register;
mod resource;
mod revoke;
mod route;
mod seen;
mod shared;
mod switch;
mod token;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::oneshot;

pub use behaviour::Behaviour;
pub use browser::Redirect;
pub use learned::Learned;
pub use seen::{Place, Seen, SeenRequest};
pub use switch::Switch;

use self::shared::{Client, IDP_CLIENT, Issuer, Proof, Shared};
use crate::Result;
use crate::server::unguessable;

/// How long what is said about people and programs is true.
const LIFETIME: u64 = 3_600;

/// The authority. It ends when it is dropped.
pub struct Authority {
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

/// The clients that are known without having registered, by how they show who they are. All of them may be led back to
/// anywhere on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Not at all: `none`.
    Public,
    /// With a secret in a header: `client_secret_basic`. It is also the one that the identity provider speaks of.
    Basic,
    /// With a secret in the form: `client_secret_post`.
    Post,
    /// With a signature, ES256: `private_key_jwt`.
    Signed,
}

impl Known {
    /// Its `client_id`.
    pub fn id(self) -> &'static str {
        match self {
            Known::Public => "public-client",
            Known::Basic => "basic-client",
            Known::Post => "post-client",
            Known::Signed => "signed-client",
        }
    }
}

impl Authority {
    /// An authority that does everything as it should.
    pub fn honest() -> Behaviour {
        Behaviour::honest()
    }

    /// Starts it, on ports of its own.
    pub async fn start(behaviour: Behaviour) -> Result<Self> {
        let make = |addresses| Shared::new(addresses, resource::server()?, behaviour);
        let (shared, end) = web::start(make).await?;
        let mut state = shared.lock();
        for issuer in [Issuer::Tenant, Issuer::Resource] {
            let proofs = [
                (Known::Public, Proof::None),
                (Known::Basic, Proof::Basic(secret(&shared, Known::Basic))),
                (Known::Post, Proof::Post(secret(&shared, Known::Post))),
                (Known::Signed, Proof::Signed(shared.client_key.jwk())),
            ];
            for (known, proof) in proofs {
                let client = Client { proof, redirect_uris: Vec::new() };
                state.clients.insert((issuer, known.id().to_owned()), client);
            }
        }
        state.secrets.extend([Known::Basic, Known::Post].map(|known| secret(&shared, known)));
        drop(state);
        Ok(Authority { shared, _end: end })
    }

    /// Behaves differently from now on. What was given out stays.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.lock().behaviour = behaviour;
    }

    /// The URL of the protected endpoint. It has the tools `greet` and `write`, of which the second takes a scope more.
    pub fn mcp_url(&self) -> String {
        self.shared.mcp_url()
    }

    /// The issuer that clients begin with.
    pub fn issuer(&self) -> String {
        self.shared.issuer(Issuer::Tenant)
    }

    /// The URL of the place that nobody should connect to.
    pub fn canary(&self) -> String {
        self.shared.canary.clone()
    }

    /// The issuer of the identity provider. Its token endpoint is `{}/token`.
    pub fn idp(&self) -> String {
        self.shared.idp()
    }

    /// The secret of a client that has one.
    pub fn secret(&self, known: Known) -> String {
        secret(&self.shared, known)
    }

    /// The private key of [`Known::Signed`], as PKCS #8 in PEM.
    pub fn client_key(&self) -> String {
        self.shared.client_key.pem()
    }

    /// Opens an authorization URL as a person does who agrees, and gives where their browser is led back to. Nobody is
    /// there yet: [`Redirect::follow`] goes on.
    pub async fn approve(&self, authorization_url: &str) -> Result<Redirect> {
        browser::approve(authorization_url).await
    }

    /// What the identity provider says of a person who has signed in: an ID token for its client `idp-client`.
    pub fn id_token(&self) -> Result<String> {
        let claims = json!({ "iss": self.idp(), "sub": "person@example.com", "aud": IDP_CLIENT });
        self.sign("JWT", claims)
    }

    /// What a platform says of a program that runs on it, for the authority.
    pub fn workload_token(&self) -> Result<String> {
        let claims = json!({ "iss": self.shared.workload(), "sub": "a-program", "aud": self.issuer() });
        self.sign("JWT", claims)
    }

    /// A token with these claims, signed by the authority. It lasts for an hour unless `exp` says something else.
    pub fn sign(&self, kind: &str, mut claims: Value) -> Result<String> {
        let mut state = self.shared.lock();
        let now = state.now().as_secs();
        for (name, value) in
            [("iat", json!(now)), ("exp", json!(now + LIFETIME)), ("jti", json!(unguessable()))]
        {
            if claims.get(name).is_none() {
                claims[name] = value;
            }
        }
        let token = self.shared.key.sign(kind, &claims)?;
        state.keep_secret(Some(&token));
        Ok(token)
    }

    /// The public key that goes with it, as a JWK.
    pub fn public_key(&self) -> Value {
        self.shared.key.jwk()
    }

    /// What has happened so far.
    pub fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Waits until enough has happened.
    pub async fn until(&self, enough: impl Fn(&Seen) -> bool) {
        loop {
            let mut news = std::pin::pin!(self.shared.news.notified());
            news.as_mut().enable();
            if enough(&self.shared.lock().seen) {
                return;
            }
            news.await;
        }
    }

    /// Where one of its servers listens.
    pub fn address(&self, place: Place) -> SocketAddr {
        let [resource, authority] = self.shared.addresses;
        if place == Place::Resource { resource } else { authority }
    }

    /// Everything secret that was given out or shown: secrets of clients, codes and their verifiers, tokens,
    /// assertions.
    pub fn secrets(&self) -> Vec<String> {
        self.shared.lock().secrets.clone()
    }

    /// The text with names in place of where its servers are, which is somewhere else each time: `MCP` of the protected
    /// endpoint, `ISSUER`, `SERVER` and `AUTHORITY` of the origins of both, and `CANARY`.
    pub fn masked(&self, text: &str) -> String {
        let origin = |place| format!("http://{}", self.address(place));
        let places = [
            (self.mcp_url(), "MCP"),
            (self.issuer(), "ISSUER"),
            (origin(Place::Resource), "SERVER"),
            (origin(Place::Authority), "AUTHORITY"),
            (self.canary(), "CANARY"),
        ];
        places.iter().fold(text.to_owned(), |text, (url, name)| text.replace(url, name))
    }

    /// Puts the clock of the authority forward.
    pub fn advance(&self, time: Duration) {
        self.shared.lock().later += time;
    }

    /// Tells the time as the authority knows it, for a client that should know the same.
    pub fn clock(&self) -> impl Fn() -> SystemTime + Send + Sync + Clone + use<> {
        let shared = self.shared.clone();
        move || UNIX_EPOCH + shared.lock().now()
    }

    /// Ends all access tokens, whatever was said of how long they last. Refresh tokens stay good.
    pub fn expire_tokens(&self) {
        self.shared.lock().access.values_mut().for_each(|access| access.end = None);
    }

    /// Revokes everything that was granted.
    pub fn revoke(&self) {
        self.shared.lock().families.fill(true);
    }

    /// Wants another nonce from now on.
    pub fn rotate_nonce(&self) {
        self.shared.lock().nonce = unguessable();
    }
}

/// Made of the key, so that each authority has others.
fn secret(shared: &Shared, known: Known) -> String {
    let key = shared.client_key.pem();
    jwt::digest(&format!("{} {key}", known.id()))
}
