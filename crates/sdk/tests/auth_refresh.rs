//! Many callers, one token: it is refreshed once each time, however many callers notice that it has expired. The
//! authority issues single-use refresh tokens and revokes everything if one is used twice.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::{Duration, Instant};

use linchpin::Client;
use linchpin::testing::authority::Authority;
use tokio::task::JoinSet;

#[path = "support/signing_in.rs"]
mod signing_in;

const CALLERS: usize = 64;
const EXPIRIES: usize = 1_000;

/// Alternates between tokens that are rejected and tokens that expire, which is known beforehand.
fn expire(authority: &Authority, expiry: usize) {
    if expiry.is_multiple_of(2) {
        authority.expire_tokens();
    } else {
        authority.advance(Duration::from_hours(2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_expiry_is_one_refresh() {
    let begun = Instant::now();
    let authority = signing_in::start(Authority::conforming()).await;
    // Several connections share their tokens.
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
    let seen = authority.observations();
    let (refreshes, requests) = (seen.refreshes, seen.requests.len());
    let (reuses, revoked, took) = (seen.reuses, seen.revoked_families, begun.elapsed());
    eprintln!(
        "callers={CALLERS} expiries={EXPIRIES} refreshes={refreshes} reuses={reuses} revoked={revoked} \
         requests={requests} in {took:.1?}"
    );
    assert_eq!((seen.with_grant_type("refresh_token").count(), refreshes), (EXPIRIES, EXPIRIES));
    assert_eq!((reuses, revoked, seen.authorizations), (0, 0, 1));
}
