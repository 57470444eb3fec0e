//! The keys of an issuer: fetched when they are needed, by one request for all who wait, and never more often than is
//! decent, whatever tokens come in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::super::{BoxFuture, start};
use super::Refused;
use crate::jose::{Algorithm, PublicKey};
use crate::sync::lock;

/// How long a fetch may take, with all that belongs to it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// For how long keys are fresh when nothing is said, at least and at most.
const FRESH: Duration = Duration::from_hours(1);
const SHORTEST_FRESH: Duration = Duration::from_mins(5);
const LONGEST_FRESH: Duration = Duration::from_hours(24);
/// For how long keys that are no longer fresh are used while no others can be had.
const STALE: Duration = Duration::from_hours(6);
/// The time between two fetches, also after failures at the latest.
const PAUSE: Duration = Duration::from_secs(30);
/// The time after a first failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) keys: Vec<PublicKey>,
    /// For how long it is fresh, if that was said.
    pub(super) max_age: Option<Duration>,
}

type Fetch = Box<dyn Fn() -> BoxFuture<Result<Fetched, String>> + Send + Sync>;

/// Keys to check tokens with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Keys(Arc<Inner>);

struct Inner {
    /// None where the keys are given once and for all.
    fetch: Option<Fetch>,
    state: Mutex<State>,
    fetched: Notify,
}

struct State {
    known: Option<Known>,
    is_fetching: bool,
    /// Not before this is anything fetched again.
    next: Instant,
    failures: u32,
}

struct Known {
    keys: Arc<[PublicKey]>,
    fresh_until: Option<Instant>,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_none_or(|until| now < until)
    }

    fn is_usable(&self, now: Instant) -> bool {
        self.fresh_until.is_none_or(|until| now < until + STALE)
    }
}

/// What to do about a token.
enum Step {
    /// These may have signed it.
    Found(Vec<PublicKey>),
    Fetch,
    Wait,
    Give(Refused),
}

impl Keys {
    /// Keys that never change.
    pub(super) fn fixed(keys: Vec<PublicKey>) -> Self {
        Self::with(None, Some(Known { keys: keys.into(), fresh_until: None }))
    }

    /// Keys that are fetched.
    pub(super) fn fetched(
        fetch: impl Fn() -> BoxFuture<Result<Fetched, String>> + Send + Sync + 'static,
    ) -> Self {
        Self::with(Some(Box::new(fetch)), None)
    }

    fn with(fetch: Option<Fetch>, known: Option<Known>) -> Self {
        let state = State { known, is_fetching: false, next: Instant::now(), failures: 0 };
        Keys(Arc::new(Inner { fetch, state: Mutex::new(state), fetched: Notify::new() }))
    }

    /// The keys that may have signed a token: those of this id, or all if it names none.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<PublicKey>, Refused> {
        let mut waited = false;
        loop {
            let mut fetched = std::pin::pin!(self.0.fetched.notified());
            fetched.as_mut().enable();
            match self.0.look(id, algorithm, waited) {
                Step::Found(keys) => return Ok(keys),
                Step::Fetch => self.start(),
                Step::Wait => {}
                Step::Give(refused) => return Err(refused),
            }
            fetched.await;
            waited = true;
        }
    }

    /// Fetches beside the request: whoever sent it may leave, and the others still wait.
    fn start(&self) {
        let mut guard = Fetching { inner: self.0.clone(), result: Err("it was given up".to_owned()) };
        start(&Handle::current(), async move {
            if let Some(fetch) = &guard.inner.fetch {
                let too_long = || Err(format!("it took longer than {} seconds", FETCH_TIMEOUT.as_secs()));
                guard.result = timeout(FETCH_TIMEOUT, fetch()).await.unwrap_or_else(|_| too_long());
            }
            drop(guard);
        });
    }
}

impl Inner {
    fn look(&self, id: Option<&str>, algorithm: Algorithm, waited: bool) -> Step {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let may_fetch = self.fetch.is_some() && !state.is_fetching && now >= state.next;
        let usable = state.known.as_ref().filter(|known| known.is_usable(now));
        let is_named = |key: &PublicKey| id.zip(key.id()).is_none_or(|(id, own)| id == own);
        let fits = |key: &&PublicKey| key.fits(algorithm) && is_named(key);
        let found: Vec<_> =
            usable.map(|known| known.keys.iter().filter(fits).cloned().collect()).unwrap_or_default();
        // Old ones are good as long as nobody answers: one of them may have been withdrawn.
        let is_fresh = usable.is_some_and(|known| known.is_fresh(now));
        let no_more = waited || !(may_fetch || state.is_fetching);
        let step = if !found.is_empty() && (is_fresh || no_more) {
            Step::Found(found)
        } else if no_more {
            // A new key may be among those that could not be had.
            Step::Give(match usable.filter(|_| state.failures == 0) {
                Some(_) => Refused::token("the token is signed with a key that is not known"),
                None => Refused::Unavailable,
            })
        } else if may_fetch {
            Step::Fetch
        } else {
            Step::Wait
        };
        state.is_fetching |= matches!(step, Step::Fetch);
        step
    }

    fn finish(&self, result: Result<Fetched, String>) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.is_fetching = false;
        match result {
            Ok(Fetched { keys, max_age }) => {
                let fresh = max_age.unwrap_or(FRESH).clamp(SHORTEST_FRESH, LONGEST_FRESH);
                state.known = Some(Known { keys: keys.into(), fresh_until: Some(now + fresh) });
                state.failures = 0;
                state.next = now + PAUSE;
            }
            Err(error) => {
                let pause = FIRST_PAUSE * (1 << state.failures.min(5));
                state.failures += 1;
                state.next = now + pause.min(PAUSE);
                tracing::warn!(error, "the keys of the issuer could not be fetched");
            }
        }
        drop(state);
        self.fetched.notify_waiters();
    }
}

/// A fetch under way. However it ends, nobody waits for it in vain.
struct Fetching {
    inner: Arc<Inner>,
    result: Result<Fetched, String>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.inner.finish(std::mem::replace(&mut self.result, Err(String::new())));
    }
}
