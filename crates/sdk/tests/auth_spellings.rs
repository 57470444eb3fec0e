//! Every place where a URL is learned from the network, with every spelling of a private address: nothing is connected
//! to. Who says it is public as far as anybody can tell.
#![cfg(all(feature = "http", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use linchpin::auth::{AuthError, AuthErrorKind, OAuth};
use linchpin::egress::Egress;
use linchpin::testing::authority::{Authority, Behaviour, Known, Place};
use linchpin::{Auth, Client, Server};
use serde_json::json;
use tokio::task::JoinSet;

#[path = "support/canary.rs"]
mod canary;
#[path = "support/http.rs"]
mod http;
#[path = "support/signing_in.rs"]
mod signing_in;
#[path = "support/spellings.rs"]
mod spellings;
#[path = "support/terminator.rs"]
mod terminator;

use canary::Canary;
use http::{HttpScript, Reply};
use terminator::Terminator;

/// The path of what is learned.
const PATH: &str = "/learned";

/// Where a URL is learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    /// `resource_metadata` of `WWW-Authenticate`.
    ResourceMetadata,
    /// `authorization_servers` of the metadata of the resource.
    Issuer,
    AuthorizationEndpoint,
    TokenEndpoint,
    RegistrationEndpoint,
    /// The keys of an issuer, which servers fetch.
    JwksUri,
    RevocationEndpoint,
    /// `Location` of an answer in place of the metadata of the authorization server.
    MetadataRedirect,
    /// The event of HTTP+SSE that says where to post.
    SseEndpoint,
}

const SITES: [Site; 9] = [
    Site::ResourceMetadata,
    Site::Issuer,
    Site::AuthorizationEndpoint,
    Site::TokenEndpoint,
    Site::RegistrationEndpoint,
    Site::JwksUri,
    Site::RevocationEndpoint,
    Site::MetadataRedirect,
    Site::SseEndpoint,
];

impl Site {
    /// An authority that names this URL here.
    fn naming(self, url: &str) -> Behaviour {
        let honest = Authority::honest();
        match self {
            Site::ResourceMetadata => honest.challenge(format!("Bearer resource_metadata=\"{url}\"")),
            Site::Issuer => honest.resource_metadata("authorization_servers", json!([url])),
            Site::AuthorizationEndpoint => honest.metadata("authorization_endpoint", url),
            Site::TokenEndpoint => honest.metadata("token_endpoint", url),
            Site::RegistrationEndpoint => honest.metadata("registration_endpoint", url),
            Site::JwksUri => honest.metadata("jwks_uri", url),
            Site::RevocationEndpoint => honest.metadata("revocation_endpoint", url),
            Site::MetadataRedirect => honest.redirect_metadata(url),
            Site::SseEndpoint => honest,
        }
    }
}

/// What came of the attempts at one place.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    tried: usize,
    /// Attempts that ended with an error.
    failed: usize,
    /// URLs that a person would have been shown.
    shown: usize,
}

/// A public server with its authority, and a client for it.
struct Stage {
    authority: Arc<Authority>,
    egress: Egress,
    site: Site,
    /// URLs that a person would have been shown.
    shown: Arc<Mutex<Vec<String>>>,
    /// Learned URLs that gave an answer.
    answered: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn new(site: Site, index: u16, terminator: &Terminator) -> Self {
        let (resource, tokens) = (1_000 + index, 2_000 + index);
        let origin = |port| format!("https://{}:{port}", terminator::NAME);
        let behaviour = Authority::honest().origins(origin(resource), origin(tokens));
        let authority = signing_in::start(behaviour).await;
        terminator.route(resource, authority.address(Place::Resource));
        terminator.route(tokens, authority.address(Place::Authority));
        let egress = terminator.egress().build().unwrap();
        Stage { authority, egress, site, shown: Arc::default(), answered: Arc::default() }
    }

    /// A client that nobody has seen before. Its person agrees, and opens nothing but what the authority has.
    fn oauth(&self, url: &str) -> OAuth {
        let (authority, shown) = (self.authority.clone(), self.shown.clone());
        let visit = move |url: String| {
            let (authority, shown) = (authority.clone(), shown.clone());
            async move {
                let public = authority.issuer().replace("/tenant", "");
                if !url.starts_with(&public) {
                    shown.lock().unwrap().push(url);
                    return Err(AuthError::new(AuthErrorKind::Person, "nobody opens this"));
                }
                let here = format!("http://{}", authority.address(Place::Authority));
                let redirect = authority.approve(&url.replace(&public, &here)).await;
                let failed =
                    |error: linchpin::Error| AuthError::new(AuthErrorKind::Person, error.to_string());
                redirect.map(|redirect| redirect.url).map_err(failed)
            }
        };
        let oauth = OAuth::new("A test").redirect(signing_in::BACK, visit);
        let oauth = match self.site {
            Site::RegistrationEndpoint => oauth,
            _ => oauth.client(Known::Public.id()),
        };
        let (origin, answered) = (url.trim_end_matches(PATH).to_owned(), self.answered.clone());
        oauth.on_step(move |step| {
            if step.status.is_some() && step.url.starts_with(&origin) {
                answered.lock().unwrap().push(step.url.to_owned());
            }
        })
    }

    /// Does what makes somebody go to this URL: signing in and out, or for keys, showing a token to a server.
    async fn try_url(&self, url: &str) -> Result<(), Box<dyn std::error::Error>> {
        self.authority.behave(self.site.naming(url));
        if self.site == Site::JwksUri {
            return self.show_token().await;
        }
        let (oauth, server) = (self.oauth(url), self.authority.mcp_url());
        let client = Client::http(&server).egress(self.egress.clone()).auth(oauth.clone()).connect().await?;
        client.close().await;
        oauth.sign_out(&server, &self.egress).await?;
        Ok(())
    }

    /// Shows a token to a server that has not fetched the keys of its issuer yet.
    async fn show_token(&self) -> Result<(), Box<dyn std::error::Error>> {
        let (issuer, resource) = (self.authority.issuer(), self.authority.mcp_url());
        let parts = [
            json!({"alg": "ES256", "kid": "k1"}).to_string(),
            json!({"iss": issuer, "aud": resource, "sub": "ada", "exp": 600}).to_string(),
            "a".repeat(64), // whether it is right is asked once there are keys
        ];
        let token = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let auth = Auth::jwt(issuer, resource).clock(|| UNIX_EPOCH).egress(self.egress.clone());
        let server = Server::new("guarded", "1").http().auth(auth).into_service().unwrap();
        let request = ::http::Request::post("/mcp").header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}")).body(String::new())?;
        match server.handle(request).await.status().as_u16() {
            401 => Ok(()), // there are keys, and none of them signed it
            status => Err(format!("the server answered {status}").into()),
        }
    }
}

/// All spellings at one place. Each time something fails, or the URL is not used.
async fn try_all(site: Site, index: u16, port: u16, terminator: Arc<Terminator>) -> Count {
    let mut count = Count::default();
    let place = Arc::<Mutex<String>>::default();
    let named = place.clone();
    let script = HttpScript::start(move |_| {
        Reply::events().chunk(format!("event: endpoint\ndata: {}\n\n", named.lock().unwrap()).as_bytes())
    });
    let script = script.await;
    let old =
        terminator.route(3_000 + index, script.origin().strip_prefix("http://").unwrap().parse().unwrap());
    let stage = Stage::new(site, index, &terminator).await;
    for host in spellings::hosts() {
        let url = format!("https://{host}:{port}{PATH}");
        count.tried += 1;
        let result = if site == Site::SseEndpoint {
            place.lock().unwrap().clone_from(&url);
            let connecting = Client::sse(format!("{old}/sse")).egress(stage.egress.clone()).connect();
            connecting.await.map(drop).map_err(Box::<dyn std::error::Error>::from)
        } else {
            stage.try_url(&url).await
        };
        count.failed += usize::from(result.is_err());
    }
    count.shown = stage.shown.lock().unwrap().len();
    assert_eq!(*stage.answered.lock().unwrap(), [""; 0], "{site:?}");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_is_connected_to_from_anywhere() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let terminator = Arc::new(Terminator::start().await);
    let mut trying = JoinSet::new();
    for (index, site) in (0..).zip(SITES) {
        let (terminator, port) = (terminator.clone(), canary.port());
        trying.spawn(async move { (site, try_all(site, index, port, terminator).await) });
    }
    let mut counts = trying.join_all().await;
    counts.sort_by_key(|(site, _)| *site as usize);
    for (site, count) in &counts {
        eprintln!("{site:?}: tried={} failed={} shown={}", count.tried, count.failed, count.shown);
    }
    let tried: usize = counts.iter().map(|(_, count)| count.tried).sum();
    let connects = canary.connections();
    eprintln!("tried={tried} connects={connects}");
    assert_eq!((tried, connects), (320 * 9, 0));
    // There the rest is found without it: what is well known is looked for next.
    for (_, count) in counts.iter().filter(|(site, _)| *site != Site::ResourceMetadata) {
        assert_eq!(count.failed, count.tried);
    }
    assert_eq!(terminator.elsewhere(), 0, "nothing was dialled but the way to the public network");
    // Where a name leads only DNS knows, and behind a proxy that is the proxy's to judge. What a host says by itself counts.
    let names = spellings::hosts().into_iter().filter(|host| host.ends_with(".nip.example"));
    assert_eq!(terminator.strangers(), names.collect());
}

#[tokio::test]
async fn another_public_url_is_used() {
    let terminator = Terminator::start().await;
    let script = HttpScript::start(|_| Reply::status(500)).await;
    let elsewhere =
        terminator.route(4_000, script.origin().strip_prefix("http://").unwrap().parse().unwrap());
    let mut used = Vec::new();
    for (index, site) in (0..8).zip(SITES) {
        let stage = Stage::new(site, index, &terminator).await;
        let (before, url) = (script.connections(), format!("{elsewhere}{PATH}"));
        let result = stage.try_url(&url).await;
        let is_shown = !stage.shown.lock().unwrap().is_empty();
        used.push((site, script.connections() > before, is_shown, result.is_ok()));
        stage.authority.behave(Authority::honest());
        let (oauth, server) = (stage.oauth(&url), stage.authority.mcp_url());
        let client = Client::http(server).egress(stage.egress.clone()).auth(oauth).connect().await;
        client.unwrap().call("greet", ()).await.unwrap();
    }
    // Which are connected to, shown to a person, and no obstacle.
    let expected = [
        (Site::ResourceMetadata, true, false, true),
        (Site::Issuer, true, false, false),
        (Site::AuthorizationEndpoint, false, true, false),
        (Site::TokenEndpoint, true, false, false),
        (Site::RegistrationEndpoint, true, false, false),
        (Site::JwksUri, true, false, false),
        (Site::RevocationEndpoint, true, false, false),
        (Site::MetadataRedirect, false, false, false),
    ];
    assert_eq!(used, expected);
}
