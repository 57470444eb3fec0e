//! Failures around a sign-in that must not end it: failing stores, cancelled callers, unstored tokens.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::Client;
use linchpin::auth::{AuthError, AuthErrorKind, AuthFuture, MemoryStore, OAuth, Secret, TokenStore};
use linchpin::testing::authority::{Authority, AuthorityHost, KnownClient, Misbehaviour};
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[path = "support/signing_in.rs"]
mod signing_in;
#[path = "support/tls_proxy.rs"]
mod tls_proxy;

/// Store whose disk is full or missing.
struct Broken {
    reads: bool,
}

fn broken<T>() -> Result<T, AuthError> {
    Err(AuthError::new(AuthErrorKind::Store, "the disk is full"))
}

impl TokenStore for Broken {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { if self.reads { Ok(None) } else { broken() } })
    }

    fn save<'a>(&'a self, _: &'a str, _: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async { broken() })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async { broken() })
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_kept_is_used_all_the_same() {
    let authority = signing_in::start(Authority::conforming()).await;
    let oauth = signing_in::oauth(&authority).store(Broken { reads: true });
    let client = Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap();
    for _ in 0..3 {
        authority.expire_tokens();
        client.call("greet", ()).await.unwrap();
    }
    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.refreshes, seen.reuses), (1, 3, 0));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_in_nobodys_way() {
    let open = linchpin::Server::new("open", "1").tool("hi", "Says hi", || async { "hi" });
    let listening = open.http().bind("127.0.0.1:0").await.unwrap();
    let url = listening.url();
    let oauth = OAuth::new("A test").store(Broken { reads: false });
    let work = async {
        let client = Client::http(url).auth(oauth).connect().await.unwrap();
        client.call("hi", ()).await.unwrap();
        client.close().await;
    };
    Box::pin(listening.run_until(work)).await.unwrap();
}

#[tokio::test]
async fn a_secret_stays_with_whoever_got_it_first() {
    let authority = signing_in::start(Authority::conforming().with(Misbehaviour::IssuerMoves)).await;
    let oauth = signing_in::oauth(&authority)
        .client_secret(KnownClient::Basic.id(), authority.secret(KnownClient::Basic));
    let life = signing_in::run_lifecycle(&authority, &oauth).await;
    let error = life.map_err(|failure| failure.error.to_string()).unwrap_err();
    assert!(error.contains("the client id is registered at"), "{error}");
}

#[tokio::test]
async fn a_wrong_secret_costs_nobody_the_sign_in() {
    let authority = signing_in::start(Authority::conforming()).await;
    let store = Arc::new(MemoryStore::default());
    let with = |secret: String| {
        let oauth =
            signing_in::oauth(&authority).store(store.clone()).client_secret(KnownClient::Basic.id(), secret);
        Client::http(authority.mcp_url()).auth(oauth)
    };
    let right = authority.secret(KnownClient::Basic);
    with(right.clone()).connect().await.unwrap().call("greet", ()).await.unwrap();
    authority.advance(Duration::from_hours(2));
    let error = with("wrong".to_owned()).connect().await.unwrap_err().to_string();
    assert!(error.contains("the client id or secret was rejected"), "{error}");
    with(right).connect().await.unwrap().call("greet", ()).await.unwrap();
    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.refreshes, seen.reuses), (1, 1, 0));
}

#[tokio::test]
async fn nobody_is_waited_for_in_vain() {
    let authority = signing_in::start(Authority::conforming()).await;
    let (asked, visits) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let oauth = {
        let (asked, visits, authority) = (asked.clone(), visits.clone(), authority.clone());
        OAuth::new("A test").clock(authority.clock()).redirect(signing_in::REDIRECT_URL, move |url| {
            let (asked, authority) = (asked.clone(), authority.clone());
            let is_first = visits.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    asked.notify_one();
                    std::future::pending::<()>().await;
                }
                let redirect = authority.approve(&url).await;
                redirect
                    .map(|back| back.url)
                    .map_err(|e| AuthError::new(AuthErrorKind::UserAbandoned, e.to_string()))
            }
        })
    };
    let connect = || Client::http(authority.mcp_url()).auth(oauth.clone()).connect();
    tokio::select! {
        _ = connect() => panic!("no user signs in"),
        () = asked.notified() => {} // and the caller is cancelled
    }
    connect().await.unwrap().call("greet", ()).await.unwrap();
    assert_eq!(visits.load(Ordering::SeqCst), 2, "the second caller redirects the user again");
}

#[tokio::test]
async fn who_has_signed_out_elsewhere_stays_out() {
    let authority = signing_in::start(Authority::conforming()).await;
    let store = Arc::new(MemoryStore::default());
    let with = || signing_in::oauth(&authority).store(store.clone());
    let (one, other) = (with(), with());
    let client = Client::http(authority.mcp_url()).auth(one.clone()).connect().await.unwrap();
    client.call("greet", ()).await.unwrap();
    signing_in::sign_out(&authority, &other).await.unwrap();
    authority.advance(Duration::from_hours(2));
    client.call("greet", ()).await.unwrap();
    let seen = authority.observations();
    assert_eq!(
        (seen.authorizations, seen.with_grant_type("refresh_token").count()),
        (2, 0),
        "the user was redirected"
    );
}

/// Store whose disk is full for some time: earlier records remain. It notifies when a record is stored.
#[derive(Clone, Default)]
struct Full(Arc<(Arc<MemoryStore>, AtomicBool, Notify)>);

impl TokenStore for Full {
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>> {
        self.0.0.load(key)
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        if self.0.1.load(Ordering::SeqCst) {
            Box::pin(async { broken() })
        } else {
            Box::pin(async {
                self.0.0.save(key, record).await?;
                self.0.2.notify_waiters();
                Ok(())
            })
        }
    }

    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()> {
        self.0.0.remove(key)
    }
}

#[tokio::test]
async fn what_could_not_be_kept_counts_more_than_what_was() {
    let authority = signing_in::start(Authority::conforming()).await;
    let store = Full::default();
    let oauth = signing_in::oauth(&authority).store(store.clone());
    let client = Client::http(authority.mcp_url()).auth(oauth.clone()).connect().await.unwrap();
    store.0.1.store(true, Ordering::SeqCst);
    for expiry in 0..4 {
        if expiry % 2 == 0 {
            authority.expire_tokens();
        } else {
            authority.advance(Duration::from_hours(2));
        }
        client.call("greet", ()).await.unwrap();
        oauth.reload();
    }
    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.refreshes, seen.reuses), (1, 4, 0));

    let kept = store.0.2.notified();
    store.0.1.store(false, Ordering::SeqCst);
    kept.await; // without any further request
    authority.advance(Duration::from_hours(2));
    let other = signing_in::oauth(&authority).store(store.clone());
    Client::http(authority.mcp_url()).auth(other).connect().await.unwrap();
    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.refreshes, seen.reuses), (1, 5, 0), "another process completes it");
}

#[tokio::test]
async fn what_another_kept_meanwhile_counts_more_than_what_could_not_be_kept() {
    let authority = signing_in::start(Authority::conforming()).await;
    let store = Full::default();
    let oauth = signing_in::oauth(&authority).store(store.clone());
    let client = Client::http(authority.mcp_url()).auth(oauth.clone()).connect().await.unwrap();
    store.0.1.store(true, Ordering::SeqCst);
    authority.advance(Duration::from_hours(2));
    client.call("greet", ()).await.unwrap();

    let other = signing_in::oauth(&authority).store(store.0.0.clone());
    signing_in::sign_out(&authority, &other).await.unwrap();
    Client::http(authority.mcp_url()).auth(other).connect().await.unwrap();
    oauth.reload();
    client.call("greet", ()).await.unwrap();
    let seen = authority.observations();
    assert_eq!(
        (seen.authorizations, seen.refreshes, seen.reuses),
        (2, 1, 0),
        "the user was not redirected again"
    );
}

#[tokio::test]
async fn who_signs_out_gives_back_what_could_not_be_kept() {
    let authority = signing_in::start(Authority::conforming()).await;
    let store = Full::default();
    let oauth = signing_in::oauth(&authority).store(store.clone());
    store.0.1.store(true, Ordering::SeqCst);
    let client = Client::http(authority.mcp_url()).auth(oauth.clone()).connect().await.unwrap();
    client.call("greet", ()).await.unwrap();
    signing_in::sign_out(&authority, &oauth).await.unwrap();
    assert!(authority.observations().with_path("/revoke").count() > 0, "an unstored token is revoked, too");
}

#[tokio::test]
async fn a_token_that_is_still_good_is_used() {
    let authority = signing_in::start(Authority::conforming()).await;
    let client = Client::http(authority.mcp_url()).auth(signing_in::oauth(&authority));
    let client = client.connect().await.unwrap();
    authority.set_behaviour(Authority::conforming().with(Misbehaviour::TokenHtmlError));
    authority.advance(Duration::from_secs(3_600 - 20));
    client.call("greet", ()).await.unwrap();
    assert_eq!(authority.observations().with_grant_type("refresh_token").count(), 1, "it was attempted");
    authority.advance(Duration::from_secs(20));
    let error = client.call("greet", ()).await.unwrap_err().to_string();
    assert!(error.contains("it responded with HTTP 500"), "{error}");
}

#[tokio::test]
async fn an_authority_that_has_moved_is_found_again() {
    let terminator = tls_proxy::TlsProxy::start().await;
    let origin = |port| format!("https://{}:{port}", tls_proxy::NAME);
    let honest = || Authority::conforming().origins(origin(1_000), origin(2_000));
    let before = honest().metadata("token_endpoint", format!("{}/tenant/token", origin(3_000)));
    let authority = signing_in::start(before).await;
    terminator.route(1_000, authority.address(AuthorityHost::Resource));
    terminator.route(2_000, authority.address(AuthorityHost::Authority));
    terminator.route(3_000, authority.address(AuthorityHost::Authority));
    let person = {
        let authority = authority.clone();
        move |url: String| {
            let authority = authority.clone();
            async move {
                let here = format!("http://{}", authority.address(AuthorityHost::Authority));
                let redirect = authority.approve(&url.replace("https://server.example:2000", &here)).await;
                redirect
                    .map(|back| back.url)
                    .map_err(|error| AuthError::new(AuthErrorKind::UserAbandoned, error.to_string()))
            }
        }
    };
    let oauth = OAuth::new("A test").redirect(signing_in::REDIRECT_URL, person).clock(authority.clock());
    let egress = terminator.egress().idle_per_host(0).build().unwrap(); // an open connection would bypass the change
    let client = Client::http(authority.mcp_url()).egress(egress).auth(oauth).connect().await.unwrap();
    client.call("greet", ()).await.unwrap();
    authority.set_behaviour(honest());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    terminator.route(3_000, nobody);
    authority.advance(Duration::from_hours(2));
    client.call("greet", ()).await.unwrap();
    let seen = authority.observations();
    assert_eq!((seen.authorizations, seen.refreshes, seen.reuses), (1, 1, 0));
}

#[tokio::test]
async fn who_needs_no_person_does_not_wait_for_one() {
    let authority = signing_in::start(Authority::conforming()).await;
    let (asked, back, visits) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let oauth = {
        let (asked, back, visits, authority) =
            (asked.clone(), back.clone(), visits.clone(), authority.clone());
        OAuth::new("A test").clock(authority.clock()).redirect(signing_in::REDIRECT_URL, move |url| {
            let (asked, back, authority) = (asked.clone(), back.clone(), authority.clone());
            let is_first = visits.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if !is_first {
                    asked.notify_one();
                    back.notified().await;
                }
                let redirect = authority.approve(&url).await;
                redirect
                    .map(|back| back.url)
                    .map_err(|e| AuthError::new(AuthErrorKind::UserAbandoned, e.to_string()))
            }
        })
    };
    let client = Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap();
    // Several calls need more scopes: one of them requests authorization for all.
    let mut writing = JoinSet::new();
    for _ in 0..4 {
        let client = client.clone();
        writing.spawn(async move { client.call("write", ()).await.map(drop) });
    }
    asked.notified().await;
    // Concurrently the token expires, is rejected, or is valid: none of that needs a user.
    for expiry in 0..6 {
        match expiry % 3 {
            0 => authority.advance(Duration::from_hours(2)),
            1 => authority.expire_tokens(),
            _ => {}
        }
        client.call("greet", ()).await.unwrap();
    }
    assert_eq!(authority.observations().refreshes, 4);
    back.notify_one();
    for result in writing.join_all().await {
        result.unwrap();
    }
    assert_eq!((visits.load(Ordering::SeqCst), authority.observations().reuses), (2, 0));
}
