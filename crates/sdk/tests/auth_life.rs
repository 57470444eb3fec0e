//! What may go wrong around a sign-in and must not end it: stores that fail, people who go, secrets that stay put.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::Client;
use linchpin::auth::{AuthError, AuthErrorKind, AuthFuture, OAuth, Secret, TokenStore};
use linchpin::testing::authority::{Authority, Known, Switch};
use tokio::sync::Notify;

#[path = "support/signing_in.rs"]
mod signing_in;

/// A store on a disk that is full, or gone.
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
    let authority = signing_in::start(Authority::honest()).await;
    let oauth = signing_in::oauth(&authority).store(Broken { reads: true });
    let client = Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap();
    for _ in 0..3 {
        authority.expire_tokens();
        client.call("greet", ()).await.unwrap();
    }
    let seen = authority.seen();
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
    listening.run_until(work).await.unwrap();
}

#[tokio::test]
async fn a_secret_stays_with_whoever_got_it_first() {
    let authority = signing_in::start(Authority::honest().with(Switch::IssuerMoves)).await;
    let oauth =
        signing_in::oauth(&authority).client_secret(Known::Basic.id(), authority.secret(Known::Basic));
    let life = signing_in::live(&authority, &oauth).await;
    let error = life.map_err(|failure| failure.error.to_string()).unwrap_err();
    assert!(error.contains("the client id is registered at"), "{error}");
}

#[tokio::test]
async fn nobody_is_waited_for_in_vain() {
    let authority = signing_in::start(Authority::honest()).await;
    let (asked, visits) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let oauth = {
        let (asked, visits, authority) = (asked.clone(), visits.clone(), authority.clone());
        OAuth::new("A test").clock(authority.clock()).redirect(signing_in::BACK, move |url| {
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
                    .map_err(|e| AuthError::new(AuthErrorKind::Person, e.to_string()))
            }
        })
    };
    let connect = || Client::http(authority.mcp_url()).auth(oauth.clone()).connect();
    tokio::select! {
        _ = connect() => panic!("nobody signs in"),
        () = asked.notified() => {} // and the caller gives up
    }
    connect().await.unwrap().call("greet", ()).await.unwrap();
    assert_eq!(visits.load(Ordering::SeqCst), 2, "the second one is asked anew");
}
