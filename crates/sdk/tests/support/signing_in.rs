//! A client that signs in to the test authority, and its whole life cycle afterwards.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::{AuthError, AuthErrorKind, OAuth};
use linchpin::egress::Egress;
use linchpin::testing::authority::{Authority, Behaviour};
use linchpin::transport::http::HttpTransport;
use linchpin::{Client, ClientBuilder, ClientError};

pub(crate) const REDIRECT_URL: &str = "http://127.0.0.1:9/callback";

pub(crate) async fn start(behaviour: Behaviour) -> Arc<Authority> {
    Arc::new(Authority::start(behaviour).await.unwrap())
}

/// Creates a client whose user approves everything, and which uses the clock of the authority.
pub(crate) fn oauth(authority: &Arc<Authority>) -> OAuth {
    with_person(OAuth::new("A test"), authority)
}

pub(crate) fn with_person(oauth: OAuth, authority: &Arc<Authority>) -> OAuth {
    let person = authority.clone();
    let visit = move |url: String| {
        let authority = person.clone();
        async move {
            let redirect = authority.approve(&url).await;
            let failed =
                |error: linchpin::Error| AuthError::new(AuthErrorKind::UserAbandoned, error.to_string());
            redirect.map(|redirect| redirect.url).map_err(failed)
        }
    };
    oauth.redirect(REDIRECT_URL, visit).clock(authority.clock())
}

/// Runs a whole life cycle with a server: connecting, a call, a call that needs more scopes, a rejected token, an
/// expired one, a revoked one, and signing out. The error names the failed step and the reason.
pub(crate) async fn run_lifecycle(authority: &Authority, oauth: &OAuth) -> Result<(), Failure> {
    run_lifecycle_with(authority, oauth, |client| client.auth(oauth.clone())).await
}

/// Like [`run_lifecycle`], with a client that is set up differently.
pub(crate) async fn run_lifecycle_with(
    authority: &Authority,
    oauth: &OAuth,
    set_up: impl FnOnce(ClientBuilder<HttpTransport>) -> ClientBuilder<HttpTransport>,
) -> Result<(), Failure> {
    let at = |step: &'static str| move |error: ClientError| Failure { step, error: Box::new(error) };
    let client = set_up(Client::http(authority.mcp_url()));
    let client = client.connect().await.map_err(at("connecting"))?;
    client.call("greet", ()).await.map_err(at("calling"))?;
    client.call("write", ()).await.map_err(at("needing more"))?;
    authority.expire_tokens();
    client.call("greet", ()).await.map_err(at("after the end of the token"))?;
    authority.advance(Duration::from_hours(2));
    client.call("write", ()).await.map_err(at("after its time"))?;
    authority.revoke();
    client.call("write", ()).await.map_err(at("after it was revoked"))?;
    client.close().await;
    sign_out(authority, oauth).await.map_err(|error| Failure { step: "signing out", error: Box::new(error) })
}

pub(crate) async fn sign_out(authority: &Authority, oauth: &OAuth) -> Result<(), AuthError> {
    oauth.sign_out(&authority.mcp_url(), &Egress::default()).await.map(drop)
}

/// The failed step and its error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: &'static str,
    pub(crate) error: Box<dyn std::error::Error + Send + Sync>,
}
