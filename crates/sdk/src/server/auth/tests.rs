//! Fetching of issuer keys: one fetch for all callers, rate limits, and stale keys while the issuer is unavailable.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::advance;

use super::super::BoxFuture;
use super::TokenError;
use super::issuer_keys::{IssuerKeys, KeySet};
use crate::jose::{Algorithm, PublicKey, SigningKey};
use crate::lock::lock;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// Issuer whose responses the test controls.
#[derive(Clone)]
struct TestIssuer {
    fetches: Arc<AtomicUsize>,
    response: Arc<Mutex<IssuerResponse>>,
    /// Each permit lets one fetch finish.
    gate: Arc<Semaphore>,
}

#[derive(Clone)]
enum IssuerResponse {
    Keys(Vec<&'static str>, Option<Duration>),
    Fails,
    Silent,
}

fn key(id: &str) -> PublicKey {
    let mut jwk = SigningKey::generate_es256().public_jwk();
    jwk["kid"] = id.into();
    PublicKey::from_jwk(&jwk).unwrap()
}

impl TestIssuer {
    fn new(ids: &[&'static str]) -> Self {
        TestIssuer {
            fetches: Arc::default(),
            response: Arc::new(Mutex::new(IssuerResponse::Keys(ids.to_vec(), None))),
            gate: Arc::new(Semaphore::new(usize::MAX >> 4)),
        }
    }

    fn set_response(&self, answer: IssuerResponse) {
        *lock(&self.response) = answer;
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    fn keys(&self) -> IssuerKeys {
        let issuer = self.clone();
        IssuerKeys::fetched(move || -> BoxFuture<_> {
            let issuer = issuer.clone();
            issuer.fetches.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                issuer.gate.acquire().await.map_err(|error| error.to_string())?.forget();
                let answer = lock(&issuer.response).clone();
                match answer {
                    IssuerResponse::Keys(ids, max_age) => {
                        Ok(KeySet { keys: ids.into_iter().map(key).collect(), max_age })
                    }
                    IssuerResponse::Fails => Err("no".to_owned()),
                    IssuerResponse::Silent => std::future::pending().await,
                }
            })
        })
    }
}

async fn find(keys: &IssuerKeys, id: &str) -> Result<usize, TokenError> {
    keys.find(Some(id), Algorithm::Es256).await.map(|found| found.len())
}

fn unknown() -> Result<usize, TokenError> {
    Err(TokenError::invalid("the token is signed with an unknown key"))
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_are_served_by_one_fetch() {
    let issuer = TestIssuer { gate: Arc::new(Semaphore::new(0)), ..TestIssuer::new(&["a"]) };
    let keys = issuer.keys();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let keys = keys.clone();
        waiting.spawn(async move { find(&keys, "a").await });
    }
    tokio::task::yield_now().await;
    issuer.gate.add_permits(1);
    while let Some(found) = waiting.join_next().await {
        assert_eq!(found.unwrap(), Ok(1));
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_are_looked_for_now_and_then() {
    let issuer = TestIssuer::new(&["a"]);
    let keys = issuer.keys();
    assert_eq!(find(&keys, "a").await, Ok(1));
    for minute in 0..10 {
        for number in 0..1_000 {
            assert_eq!(find(&keys, &format!("{minute} {number}")).await, unknown());
        }
        advance(30 * SECOND).await;
    }
    assert_eq!(issuer.fetches(), 10, "the first, and one every 30 seconds");
    issuer.set_response(IssuerResponse::Keys(vec!["a", "b"], None));
    assert_eq!(find(&keys, "b").await, Ok(1));
    assert_eq!(find(&keys, "a").await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_fails_is_asked_ever_less_often() {
    let issuer = TestIssuer::new(&["a"]);
    issuer.set_response(IssuerResponse::Fails);
    let keys = issuer.keys();
    let mut at = Vec::new();
    for second in 0..200_u64 {
        let before = issuer.fetches();
        assert_eq!(find(&keys, "a").await, Err(TokenError::Unavailable));
        assert_eq!(find(&keys, "a").await, Err(TokenError::Unavailable));
        if issuer.fetches() > before {
            at.push(second);
        }
        advance(SECOND).await;
    }
    assert_eq!(at, [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181]);
    issuer.set_response(IssuerResponse::Keys(vec!["a"], None));
    advance(30 * SECOND).await;
    assert_eq!(find(&keys, "a").await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn keys_are_fresh_for_as_long_as_is_said_within_bounds() {
    for (said, fresh) in [
        (None, HOUR),
        (Some(Duration::ZERO), 300 * SECOND),
        (Some(2 * HOUR), 2 * HOUR),
        (Some(1_000 * HOUR), 24 * HOUR),
    ] {
        let issuer = TestIssuer::new(&["a"]);
        issuer.set_response(IssuerResponse::Keys(vec!["a"], said));
        let keys = issuer.keys();
        assert_eq!(find(&keys, "a").await, Ok(1));
        advance(fresh.saturating_sub(SECOND)).await;
        assert_eq!(find(&keys, "a").await, Ok(1));
        tokio::task::yield_now().await;
        assert_eq!(issuer.fetches(), 1, "{said:?}");
        advance(SECOND).await;
        assert_eq!(find(&keys, "a").await, Ok(1));
        assert_eq!(issuer.fetches(), 2, "waits for newer keys: {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_keys_are_used_for_a_while_when_nobody_answers() {
    for answer in [IssuerResponse::Fails, IssuerResponse::Silent] {
        let issuer = TestIssuer::new(&["a"]);
        let keys = issuer.keys();
        assert_eq!(find(&keys, "a").await, Ok(1));
        issuer.set_response(answer);
        for _ in 0..7 {
            advance(HOUR.saturating_sub(20 * SECOND)).await;
            assert_eq!(find(&keys, "a").await, Ok(1));
        }
        assert!(issuer.fetches() > 1);
        assert_eq!(find(&keys, "b").await, Err(TokenError::Unavailable), "waits once");
        advance(140 * SECOND).await;
        assert_eq!(find(&keys, "a").await, Err(TokenError::Unavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_not_denied_while_nobody_answers() {
    let issuer = TestIssuer::new(&["old"]);
    let keys = issuer.keys();
    assert_eq!(find(&keys, "old").await, Ok(1));
    issuer.set_response(IssuerResponse::Fails);
    assert_eq!(find(&keys, "new").await, unknown(), "fetched a moment ago");
    advance(30 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(find(&keys, "new").await, Err(TokenError::Unavailable));
        assert_eq!(find(&keys, "old").await, Ok(1));
    }
    assert_eq!(issuer.fetches(), 2);
    issuer.set_response(IssuerResponse::Keys(vec!["old", "new"], None));
    advance(SECOND).await;
    assert_eq!(find(&keys, "new").await, Ok(1));
    assert_eq!(find(&keys, "newer").await, unknown());
}

#[tokio::test(start_paused = true)]
async fn a_silent_issuer_is_given_up() {
    let issuer = TestIssuer::new(&["a"]);
    issuer.set_response(IssuerResponse::Silent);
    let keys = issuer.keys();
    let started = tokio::time::Instant::now();
    assert_eq!(find(&keys, "a").await, Err(TokenError::Unavailable));
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn fixed_keys_are_all_there_is() {
    let keys = IssuerKeys::fixed(vec![key("a"), key("b"), key("b")]);
    assert_eq!(find(&keys, "b").await, Ok(2));
    assert_eq!(find(&keys, "c").await, unknown());
    assert_eq!(keys.find(None, Algorithm::Es256).await.unwrap().len(), 3);
    assert!(keys.find(None, Algorithm::Rs256).await.is_err());
}
