//! Many callers, one token: it is renewed once each time, however many notice that it is over. The authority gives each
//! refresh token for one use, and revokes everything when one is used twice.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::task::Poll;
use std::time::{Duration, Instant};

use http::HeaderMap;
use linchpin::Client;
use linchpin::auth::{AuthFuture, Authorize, Credentials, OAuth, Refusal, Request};
use linchpin::testing::authority::Authority;
use tokio::task::JoinSet;

#[path = "support/signing_in.rs"]
mod signing_in;

const CALLERS: usize = 64;

/// Asks and answers for every caller at once, so that one request stands for those of all of them.
struct Crowd(OAuth);

impl Authorize for Crowd {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        Box::pin(async move {
            let all = all((0..CALLERS).map(|_| self.0.credentials(request)).collect()).await;
            let mut all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
            assert!(all.iter().all(|one| one.mark == all[0].mark), "all have the same token");
            Ok(all.swap_remove(0))
        })
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        Box::pin(async move {
            let all = all((0..CALLERS).map(|_| self.0.refused(request, refusal.clone())).collect()).await;
            Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().all(|again| again))
        })
    }

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        self.0.answered(request, mark, status, headers);
    }
}

/// What comes of all of them, side by side.
async fn all<T>(mut work: Vec<AuthFuture<'_, T>>) -> Vec<Result<T, linchpin::auth::AuthError>> {
    let mut done: Vec<_> = work.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (work, done) in work.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                *done = Some(result);
            }
        }
        if done.iter().any(Option::is_none) { Poll::Pending } else { Poll::Ready(std::mem::take(&mut done)) }
    })
    .await
    .into_iter()
    .flatten()
    .collect()
}

/// In turn: tokens that are refused, and tokens that run out, which is known beforehand.
fn expire(authority: &Authority, expiry: usize) {
    if expiry.is_multiple_of(2) {
        authority.expire_tokens();
    } else {
        authority.advance(Duration::from_hours(2));
    }
}

/// What is to be shown, in numbers.
fn check(authority: &Authority, expiries: usize, begun: Instant) -> String {
    let seen = authority.seen();
    assert_eq!((seen.grants("refresh_token").count(), seen.refreshes), (expiries, expiries));
    assert_eq!((seen.reuses, seen.revoked_families, seen.authorizations), (0, 0, 1));
    format!(
        "callers={CALLERS} expiries={expiries} refreshes={} reuses={} revoked={} requests={} in {:.1?}",
        seen.refreshes,
        seen.reuses,
        seen.revoked_families,
        seen.requests.len(),
        begun.elapsed()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_expiry_is_one_refresh() {
    const EXPIRIES: usize = 1_000;
    let begun = Instant::now();
    let authority = signing_in::start(Authority::honest()).await;
    let crowd = Crowd(signing_in::oauth(&authority));
    let client = Client::http(authority.mcp_url()).auth(crowd).connect().await.unwrap();
    for expiry in 0..EXPIRIES {
        expire(&authority, expiry);
        client.call("greet", ()).await.unwrap();
    }
    println!("{}", check(&authority, EXPIRIES, begun));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_requests_are_on_their_way() {
    const EXPIRIES: usize = 100;
    let begun = Instant::now();
    let authority = signing_in::start(Authority::honest()).await;
    // Several connections share what they know.
    let oauth = signing_in::oauth(&authority);
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::http(authority.mcp_url()).auth(oauth.clone()).connect().await.unwrap());
    }
    for expiry in 0..EXPIRIES {
        expire(&authority, expiry);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let client = clients[caller % clients.len()].clone();
            callers.spawn(async move { client.call("greet", ()).await.map(drop) });
        }
        while let Some(called) = callers.join_next().await {
            called.unwrap().unwrap();
        }
    }
    println!("{}", check(&authority, EXPIRIES, begun));
}
