//! Exact requests to an authority, and the order in which tokens are stored and used.
#![cfg(all(feature = "http", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use linchpin::Client;
use linchpin::auth::{
    AuthError, AuthErrorKind, AuthFuture, AuthRejection, Authorize, Credentials, MemoryStore, OAuth, Request,
    Secret, TokenStore,
};
use linchpin::testing::authority::{Authority, AuthorityHost, Behaviour, Observations};
use serde_json::Value;

#[path = "support/signing_in.rs"]
mod signing_in;
#[path = "support/tls_proxy.rs"]
mod tls_proxy;

use tls_proxy::TlsProxy;

/// Whether a token was stored or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// A stored record that contains the token.
    Kept(String),
    Sent(String),
}

type Log = Arc<Mutex<Vec<Event>>>;

/// Store that is slow to save.
struct Slow(MemoryStore, Log);

impl TokenStore for Slow {
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>> {
        self.0.load(key)
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move {
            for _ in 0..100 {
                tokio::task::yield_now().await; // a caller that does not wait would continue here
            }
            self.1.lock().unwrap().push(Event::Kept(record.expose().to_owned()));
            self.0.save(key, record).await
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()> {
        self.0.remove(key)
    }
}

/// Records the credentials of requests.
struct Noting(OAuth, Log);

impl Authorize for Noting {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        Box::pin(async move {
            let credentials = self.0.credentials(request).await?;
            let tokens = credentials
                .headers
                .iter()
                .filter_map(|(_, value)| value.to_str().unwrap().strip_prefix("Bearer "));
            self.1.lock().unwrap().extend(tokens.map(|token| Event::Sent(token.to_owned())));
            Ok(credentials)
        })
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        self.0.on_rejected(request, refusal)
    }

    fn on_response(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.0.on_response(request, mark, status, headers);
    }
}

#[tokio::test]
async fn a_token_is_kept_before_it_is_used() {
    let (authority, log) = (signing_in::start(Authority::conforming()).await, Log::default());
    let oauth = signing_in::oauth(&authority).store(Slow(MemoryStore::default(), log.clone()));
    let client = Client::http(authority.mcp_url()).auth(Noting(oauth, log.clone())).connect().await.unwrap();
    authority.expire_tokens();
    client.call("greet", ()).await.unwrap(); // is rejected, and refreshes the token
    authority.advance(Duration::from_hours(2));
    client.call("greet", ()).await.unwrap(); // refreshes it before sending
    let log = log.lock().unwrap();
    let mut tokens: Vec<_> = log
        .iter()
        .filter_map(|event| if let Event::Sent(token) = event { Some(token) } else { None })
        .collect();
    tokens.dedup();
    assert_eq!(
        (tokens.len(), authority.observations().refreshes),
        (3, 2),
        "one token was issued, and two were refreshed"
    );
    for token in tokens {
        let kept =
            log.iter().position(|event| matches!(event, Event::Kept(record) if record.contains(token)));
        let sent = log.iter().position(|event| matches!(event, Event::Sent(sent) if sent == token));
        assert!(kept.is_some() && kept < sent, "{kept:?} {sent:?}");
    }
}

/// Signs in to `https://server.example/mcp`, whose authority is at another port of the same host, and refreshes the
/// token.
async fn public(behaviour: Behaviour) -> Observations {
    let (terminator, own) = (TlsProxy::start().await, format!("https://{}", tls_proxy::NAME));
    let authority = signing_in::start(behaviour.origins(&own, format!("{own}:2000"))).await;
    terminator.route(443, authority.address(AuthorityHost::Resource));
    terminator.route(2000, authority.address(AuthorityHost::Authority));
    let here = format!("http://{}", authority.address(AuthorityHost::Authority));
    let person = authority.clone();
    let visit = move |url: String| {
        let (person, url) = (person.clone(), url.replace(&format!("{own}:2000"), &here));
        async move {
            let failed =
                |error: linchpin::Error| AuthError::new(AuthErrorKind::UserAbandoned, error.to_string());
            person.approve(&url).await.map(|redirect| redirect.url).map_err(failed)
        }
    };
    let oauth = OAuth::new("A test").redirect(signing_in::REDIRECT_URL, visit).clock(authority.clock());
    let client = Client::http(authority.mcp_url()).egress(terminator.egress().build().unwrap()).auth(oauth);
    let client = client.connect().await.unwrap();
    authority.expire_tokens();
    client.call("greet", ()).await.unwrap();
    authority.observations()
}

#[tokio::test]
async fn the_resource_is_named_as_it_names_itself() {
    for resource in [
        "https://server.example/mcp",
        "https://server.example/mcp/",
        "https://server.example:443/mcp",
        "https://SERVER.example/mcp",
        "HTTPS://server.example/mcp",
        "https://server.example/",
        "https://server.example",
    ] {
        let seen = public(Authority::conforming().resource_metadata("resource", resource)).await;
        let asked = seen.with_path("/authorize").chain(seen.with_path("/token"));
        let named: Vec<_> = asked.map(|request| request.parameter("resource").unwrap()).collect();
        assert_eq!(named, [resource; 3], "for the code, the token and the next one");
    }
}

/// Returns the registration and the requested scope and prompt.
async fn asked(set_up: impl Fn(OAuth) -> OAuth, back: &str) -> (Value, Option<String>, Option<String>) {
    let authority = signing_in::start(Authority::conforming()).await;
    let person = authority.clone();
    let visit = move |url: String| {
        let person = person.clone();
        async move { Ok(person.approve(&url).await.unwrap().url) }
    };
    let oauth = set_up(OAuth::new("A test").redirect(back, visit).clock(authority.clock()));
    Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap();
    let seen = authority.observations();
    let (registered, asked) =
        (seen.with_path("/register").next().unwrap(), seen.with_path("/authorize").next().unwrap());
    (registered.json(), asked.parameter("scope"), asked.parameter("prompt"))
}

#[tokio::test]
async fn a_website_registers_as_one() {
    for (back, kind) in [
        ("https://app.example/callback", "web"),
        ("http://127.0.0.1:9/callback", "native"),
        ("http://localhost:9/callback", "native"),
        ("com.example.app:/callback", "native"),
    ] {
        let (registered, ..) = asked(|oauth| oauth, back).await;
        assert_eq!(registered["application_type"], kind, "{back}");
        assert_eq!(registered["redirect_uris"], serde_json::json!([back]));
    }
}

#[tokio::test]
async fn offline_access_is_asked_for_unless_nobody_wants_it() {
    let (registered, scope, prompt) = asked(|oauth| oauth, signing_in::REDIRECT_URL).await;
    assert_eq!(
        (registered["scope"].as_str(), scope.as_deref()),
        (Some("read offline_access"), Some("read offline_access"))
    );
    assert_eq!(prompt.as_deref(), Some("consent"));
    let (registered, scope, prompt) = asked(OAuth::without_offline_access, signing_in::REDIRECT_URL).await;
    assert_eq!((registered["scope"].as_str(), scope.as_deref()), (Some("read"), Some("read")));
    assert_eq!(prompt, None);
}
