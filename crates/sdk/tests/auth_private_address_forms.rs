//! Every URL that is discovered from the network, with every spelling of a private address: nothing connects to it. The
//! document itself comes from an address that looks public.
#![cfg(all(feature = "http", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use linchpin::auth::{AuthError, AuthErrorKind, OAuth};
use linchpin::egress::Egress;
use linchpin::testing::authority::{Authority, AuthorityHost, KnownClient, UrlField};
use linchpin::{Auth, Client, Server};
use serde_json::json;
use tokio::task::JoinSet;

#[path = "support/canary.rs"]
mod canary;
#[path = "support/http.rs"]
mod http;
#[path = "support/private_address_forms.rs"]
mod private_address_forms;
#[path = "support/signing_in.rs"]
mod signing_in;
#[path = "support/tls_proxy.rs"]
mod tls_proxy;

use canary::Canary;
use http::{HttpScript, Reply};
use tls_proxy::TlsProxy;

/// Path of the discovered URL.
const PATH: &str = "/learned";

/// Results of the attempts at one location.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    tried: usize,
    /// Attempts that ended with an error.
    failed: usize,
    /// URLs that the user would have been redirected to.
    shown: usize,
}

/// Public server with its authority, and a client for it.
struct Stage {
    authority: Arc<Authority>,
    egress: Egress,
    site: UrlField,
    /// URLs that the user would have been redirected to.
    shown: Arc<Mutex<Vec<String>>>,
    /// Discovered URLs that responded.
    answered: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn new(site: UrlField, index: u16, terminator: &TlsProxy) -> Self {
        let (resource, tokens) = (1_000 + index, 2_000 + index);
        let origin = |port| format!("https://{}:{port}", tls_proxy::NAME);
        let behaviour = Authority::conforming().origins(origin(resource), origin(tokens));
        let authority = signing_in::start(behaviour).await;
        terminator.route(resource, authority.address(AuthorityHost::Resource));
        terminator.route(tokens, authority.address(AuthorityHost::Authority));
        let egress = terminator.egress().build().unwrap();
        Stage { authority, egress, site, shown: Arc::default(), answered: Arc::default() }
    }

    /// Returns a new client. Its user consents, and opens only URLs of the authority.
    fn oauth(&self, url: &str) -> OAuth {
        let (authority, shown) = (self.authority.clone(), self.shown.clone());
        let visit = move |url: String| {
            let (authority, shown) = (authority.clone(), shown.clone());
            async move {
                let public = authority.issuer().replace("/tenant", "");
                if !url.starts_with(&public) {
                    shown.lock().unwrap().push(url);
                    return Err(AuthError::new(AuthErrorKind::UserAbandoned, "not opened"));
                }
                let here = format!("http://{}", authority.address(AuthorityHost::Authority));
                let redirect = authority.approve(&url.replace(&public, &here)).await;
                let failed =
                    |error: linchpin::Error| AuthError::new(AuthErrorKind::UserAbandoned, error.to_string());
                redirect.map(|redirect| redirect.url).map_err(failed)
            }
        };
        let oauth = OAuth::new("A test").redirect(signing_in::REDIRECT_URL, visit);
        let oauth = match self.site {
            UrlField::RegistrationEndpoint => oauth,
            _ => oauth.client(KnownClient::Public.id()),
        };
        let (origin, answered) = (url.trim_end_matches(PATH).to_owned(), self.answered.clone());
        oauth.on_step(move |step| {
            if step.status.is_some() && step.url.starts_with(&origin) {
                answered.lock().unwrap().push(step.url.to_owned());
            }
        })
    }

    /// Does what uses this URL: signing in and out, or for keys, sending a token to a server.
    async fn try_url(&self, url: &str) -> Result<(), Box<dyn std::error::Error>> {
        self.authority.set_behaviour(Authority::conforming().with_url(self.site, url));
        if self.site == UrlField::JwksUri {
            return self.show_token().await;
        }
        let (oauth, server) = (self.oauth(url), self.authority.mcp_url());
        let client = Client::http(&server).egress(self.egress.clone()).auth(oauth.clone()).connect().await?;
        client.close().await;
        oauth.sign_out(&server, &self.egress).await?;
        Ok(())
    }

    /// Sends a token to a server that has not fetched the keys of its issuer yet.
    async fn show_token(&self) -> Result<(), Box<dyn std::error::Error>> {
        let (issuer, resource) = (self.authority.issuer(), self.authority.mcp_url());
        let parts = [
            json!({"alg": "ES256", "kid": "k1"}).to_string(),
            json!({"iss": issuer, "aud": resource, "sub": "ada", "exp": 600}).to_string(),
            "a".repeat(64), // verified only once there are keys
        ];
        let token = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let auth = Auth::jwt(issuer, resource).clock(|| UNIX_EPOCH).egress(self.egress.clone());
        let server = Server::new("guarded", "1").http().auth(auth).into_service().unwrap();
        let request = ::http::Request::post("/mcp").header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}")).body(String::new())?;
        match server.handle(request).await.status().as_u16() {
            401 => Ok(()), // the keys were fetched, and none of them signed it
            status => Err(format!("the server responded with {status}").into()),
        }
    }
}

/// Returns every spelling, as a discovered URL.
fn urls(port: u16) -> impl Iterator<Item = String> {
    private_address_forms::hosts().into_iter().map(move |host| format!("https://{host}:{port}{PATH}"))
}

/// Tries all spellings at one location. Each attempt fails, or the URL is not used.
async fn try_all(site: UrlField, index: u16, port: u16, terminator: Arc<TlsProxy>) -> Count {
    let (stage, mut count) = (Stage::new(site, index, &terminator).await, Count::default());
    for url in urls(port) {
        count.tried += 1;
        count.failed += usize::from(stage.try_url(&url).await.is_err());
    }
    count.shown = stage.shown.lock().unwrap().len();
    assert_eq!(*stage.answered.lock().unwrap(), [""; 0], "{site:?}");
    count
}

/// Tries all spellings in the `endpoint` event of HTTP+SSE; returns their number.
async fn try_endpoints(port: u16, terminator: Arc<TlsProxy>) -> usize {
    let place = Arc::<Mutex<String>>::default();
    let named = place.clone();
    let script = HttpScript::start(move |_| {
        Reply::events().chunk(format!("event: endpoint\ndata: {}\n\n", named.lock().unwrap()).as_bytes())
    });
    let script = script.await;
    let (old, egress) = (terminator.route(3_000, script.address), terminator.egress().build().unwrap());
    let mut tried = 0;
    for url in urls(port) {
        tried += 1;
        place.lock().unwrap().clone_from(&url);
        let connecting = Client::sse(format!("{old}/sse")).egress(egress.clone()).connect();
        assert!(connecting.await.is_err(), "{url:?}");
    }
    tried
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_is_connected_to_from_anywhere() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let terminator = Arc::new(TlsProxy::start().await);
    let mut trying = JoinSet::new();
    for (index, site) in (0..).zip(UrlField::ALL) {
        let (terminator, port) = (terminator.clone(), canary.port());
        trying.spawn(async move { (site, try_all(site, index, port, terminator).await) });
    }
    let endpoints = try_endpoints(canary.port(), terminator.clone()).await;
    let mut counts = trying.join_all().await;
    counts.sort_by_key(|(site, _)| *site);
    for (site, count) in &counts {
        eprintln!("{site:?}: tried={} failed={} shown={}", count.tried, count.failed, count.shown);
    }
    let tried = endpoints + counts.iter().map(|(_, count)| count.tried).sum::<usize>();
    let connects = canary.connections();
    eprintln!("tried={tried} connects={connects}");
    assert_eq!((tried, connects), (320 * 9, 0));
    // Here discovery continues without it: the well-known URLs are tried next.
    for (_, count) in counts.iter().filter(|(site, _)| *site != UrlField::ResourceMetadata) {
        assert_eq!(count.failed, count.tried);
    }
    assert_eq!(terminator.elsewhere(), 0, "only public addresses were dialled");
    // Where a name leads only DNS knows, and behind a proxy that is up to the proxy. Literal addresses are checked
    // here.
    let names = private_address_forms::hosts().into_iter().filter(|host| host.ends_with(".nip.example"));
    assert_eq!(terminator.unknown_hosts(), names.collect());
}

#[tokio::test]
async fn another_public_url_is_used() {
    let terminator = TlsProxy::start().await;
    let script = HttpScript::start(|_| Reply::status(500)).await;
    let elsewhere = terminator.route(4_000, script.address);
    let mut used = Vec::new();
    for (index, site) in (0..).zip(UrlField::ALL) {
        let stage = Stage::new(site, index, &terminator).await;
        let (before, url) = (script.connections(), format!("{elsewhere}{PATH}"));
        let result = stage.try_url(&url).await;
        let is_shown = !stage.shown.lock().unwrap().is_empty();
        used.push((site, script.connections() > before, is_shown, result.is_ok()));
        stage.authority.set_behaviour(Authority::conforming());
        let (oauth, server) = (stage.oauth(&url), stage.authority.mcp_url());
        let client = Client::http(server).egress(stage.egress.clone()).auth(oauth).connect().await;
        client.unwrap().call("greet", ()).await.unwrap();
    }
    // Connected to, shown to the user, and not an obstacle.
    let expected = [
        (UrlField::ResourceMetadata, true, false, true),
        (UrlField::Issuer, true, false, false),
        (UrlField::AuthorizationEndpoint, false, true, false),
        (UrlField::TokenEndpoint, true, false, false),
        (UrlField::RegistrationEndpoint, true, false, false),
        (UrlField::JwksUri, true, false, false),
        (UrlField::RevocationEndpoint, true, false, false),
        (UrlField::MetadataRedirect, false, false, false),
    ];
    assert_eq!(used, expected);
}
