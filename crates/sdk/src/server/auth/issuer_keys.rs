//! Cache of the public keys (JWKs) of a token issuer. Keys are fetched on demand by one request for all waiting
//! callers, and the fetch rate is limited regardless of the tokens that arrive.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::super::{BoxFuture, spawn};
use super::TokenError;
use crate::jose::{Algorithm, PublicKey};
use crate::lock::lock;

/// Timeout of fetching the issuer's keys, including metadata and redirects.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long fetched keys of an issuer are fresh if the response has no `max-age`.
const DEFAULT_FRESHNESS: Duration = Duration::from_hours(1);
/// Minimum time for which fetched keys of an issuer are fresh.
const MIN_FRESHNESS: Duration = Duration::from_mins(5);
/// Maximum time for which fetched keys of an issuer are fresh.
const MAX_FRESHNESS: Duration = Duration::from_hours(24);
/// How long keys of an issuer are used after they are no longer fresh, if fetching fails.
const MAX_STALENESS: Duration = Duration::from_hours(6);
/// Minimum time between two fetches of an issuer's keys, and the maximum backoff after failures.
const FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Backoff after the first failure; it doubles with each further failure.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Public keys that were fetched from a token issuer, and how long they may be cached.
#[derive(Debug)]
pub(super) struct KeySet {
    pub(super) keys: Vec<PublicKey>,
    /// Value of `max-age` in the response with the keys, if present.
    pub(super) max_age: Option<Duration>,
}

type Fetch = Box<dyn Fn() -> BoxFuture<Result<KeySet, String>> + Send + Sync>;

/// Public keys of a token issuer, fetched and cached on demand. Cheap to clone.
#[derive(Clone)]
pub(super) struct IssuerKeys(Arc<Inner>);

struct Inner {
    /// Settings for fetching the keys; `None` for fixed keys.
    fetch: Option<Fetch>,
    state: Mutex<KeyState>,
    fetched: Notify,
}

struct KeyState {
    keys: Option<FetchedKeys>,
    is_fetching: bool,
    /// Earliest time of the next fetch of the issuer's keys.
    next_fetch: Instant,
    failures: u32,
}

struct FetchedKeys {
    keys: Arc<[PublicKey]>,
    fresh_until: Option<Instant>,
}

impl FetchedKeys {
    fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_none_or(|until| now < until)
    }

    fn is_usable(&self, now: Instant) -> bool {
        self.fresh_until.is_none_or(|until| now < until + MAX_STALENESS)
    }
}

/// Result of looking up the verification key of a token: keys, a fetch, a wait for a running fetch, or a failure.
enum KeyLookup {
    /// Keys of the issuer that may have signed the token.
    Found(Vec<PublicKey>),
    Fetch,
    Wait,
    Fail(TokenError),
}

impl IssuerKeys {
    /// Creates a set of keys that never changes.
    pub(super) fn fixed(keys: Vec<PublicKey>) -> Self {
        Self::new(None, Some(FetchedKeys { keys: keys.into(), fresh_until: None }))
    }

    /// Creates a set of keys that is fetched on demand.
    pub(super) fn fetched(
        fetch: impl Fn() -> BoxFuture<Result<KeySet, String>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(Some(Box::new(fetch)), None)
    }

    fn new(fetch: Option<Fetch>, keys: Option<FetchedKeys>) -> Self {
        let state = KeyState { keys, is_fetching: false, next_fetch: Instant::now(), failures: 0 };
        IssuerKeys(Arc::new(Inner { fetch, state: Mutex::new(state), fetched: Notify::new() }))
    }

    /// Returns the keys that may have signed a token with this algorithm: those with this id or without any id, or all if
    /// `id` is `None`.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<PublicKey>, TokenError> {
        let mut has_waited = false;
        loop {
            let mut fetched = std::pin::pin!(self.0.fetched.notified());
            fetched.as_mut().enable();
            match self.0.lookup(id, algorithm, has_waited) {
                KeyLookup::Found(keys) => return Ok(keys),
                KeyLookup::Fetch => self.start_fetch(),
                KeyLookup::Wait => {}
                KeyLookup::Fail(refused) => return Err(refused),
            }
            fetched.await;
            has_waited = true;
        }
    }

    /// Fetches the keys of the issuer in a separate task, so that other callers still get them if this request is
    /// cancelled.
    fn start_fetch(&self) {
        let mut guard = FetchGuard {
            inner: self.0.clone(),
            result: Err("the fetch of the keys was cancelled".to_owned()),
        };
        spawn(&Handle::current(), async move {
            if let Some(fetch) = &guard.inner.fetch {
                let timeout_error = || {
                    Err(format!("the fetch of the keys took longer than {} seconds", FETCH_TIMEOUT.as_secs()))
                };
                guard.result = timeout(FETCH_TIMEOUT, fetch()).await.unwrap_or_else(|_| timeout_error());
            }
            drop(guard);
        });
    }
}

impl Inner {
    fn lookup(&self, id: Option<&str>, algorithm: Algorithm, has_waited: bool) -> KeyLookup {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let may_fetch = self.fetch.is_some() && !state.is_fetching && now >= state.next_fetch;
        let usable = state.keys.as_ref().filter(|fetched| fetched.is_usable(now));
        let is_named = |key: &PublicKey| id.zip(key.id()).is_none_or(|(id, key_id)| id == key_id);
        let is_candidate = |key: &&PublicKey| key.supports(algorithm) && is_named(key);
        let found: Vec<_> = usable
            .map(|fetched| fetched.keys.iter().filter(is_candidate).cloned().collect())
            .unwrap_or_default();
        // Stale keys are used only if fetching fails: one of them may have been withdrawn.
        let is_fresh = usable.is_some_and(|fetched| fetched.is_fresh(now));
        let is_final = has_waited || !(may_fetch || state.is_fetching);
        let step = if !found.is_empty() && (is_fresh || is_final) {
            KeyLookup::Found(found)
        } else if is_final {
            // After a failed fetch the key may be a new one, so the token cannot be called invalid.
            KeyLookup::Fail(match usable.filter(|_| state.failures == 0) {
                Some(_) => TokenError::invalid("the token is signed with an unknown key"),
                None => TokenError::Unavailable,
            })
        } else if may_fetch {
            KeyLookup::Fetch
        } else {
            KeyLookup::Wait
        };
        state.is_fetching |= matches!(step, KeyLookup::Fetch);
        step
    }

    fn finish_fetch(&self, result: Result<KeySet, String>) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.is_fetching = false;
        match result {
            Ok(KeySet { keys, max_age }) => {
                let freshness = max_age.unwrap_or(DEFAULT_FRESHNESS).clamp(MIN_FRESHNESS, MAX_FRESHNESS);
                state.keys = Some(FetchedKeys { keys: keys.into(), fresh_until: Some(now + freshness) });
                state.failures = 0;
                state.next_fetch = now + FETCH_INTERVAL;
            }
            Err(error) => {
                let delay = INITIAL_BACKOFF * (1 << state.failures.min(5));
                state.failures += 1;
                state.next_fetch = now + delay.min(FETCH_INTERVAL);
                tracing::warn!(error, "failed to fetch the keys of the issuer");
            }
        }
        drop(state);
        self.fetched.notify_waiters();
    }
}

/// Guard of a running fetch of issuer keys: wakes all waiting callers even if the fetch is cancelled or panics.
struct FetchGuard {
    inner: Arc<Inner>,
    result: Result<KeySet, String>,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.inner.finish_fetch(std::mem::replace(&mut self.result, Err(String::new())));
    }
}
