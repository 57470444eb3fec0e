//! Token state of one server and account.
//!
//! A caller that needs a token waits for the account lock, uses the token that another caller obtained in the meantime,
//! and requests one only otherwise. A token request runs to completion even if its caller is cancelled: a refresh token
//! is usable once, so its replacement must be stored.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::header::AUTHORIZATION;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, oneshot, watch};

use super::Profile;
use super::persist::{Unkept, keep_on};
use super::runner::now;
use super::waiters::Waits;
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind, quoted};
use crate::auth::flow::dpop;
use crate::auth::scheme::{Credentials, Request, header_value};
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;
use crate::auth::store::record::Record;
use crate::lock::lock;

/// Maximum number of step-up authorizations for the same scopes, and in a row without a success.
const MOST_STEP_UPS: usize = 2;
/// Maximum number of scope sets that are counted.
const MOST_COUNTED: usize = 64;

pub(in crate::auth) type Turns = Arc<tokio::sync::Mutex<()>>;

/// Locks held by the running operation. Lock order: the sign-in lock before the update lock.
#[derive(Default)]
pub(in crate::auth) struct Held {
    pub(in crate::auth) turn: Option<OwnedMutexGuard<()>>,
    pub(in crate::auth) asking: Option<OwnedMutexGuard<()>>,
}

/// Token state of one server, for one account.
pub(in crate::auth) struct Account {
    pub(in crate::auth) key: String,
    pub(in crate::auth) live: Mutex<Live>,
    /// Held while the token changes, but not while a user signs in.
    pub(in crate::auth) turn: Turns,
    /// Held while a user signs in.
    pub(in crate::auth) asking: Turns,
    /// Number of requests that wait for a token.
    pub(in crate::auth) waiting: watch::Sender<usize>,
    /// Whether the last sign-in was abandoned because no request waited for it any more.
    pub(in crate::auth) is_abandoned: AtomicBool,
}

pub(in crate::auth) struct Live {
    record: Option<Arc<Record>>,
    /// Whether `record` reflects the store, as far as is known.
    pub(in crate::auth) is_loaded: bool,
    /// Number of reload requests and failed reads of the store.
    pub(in crate::auth) reloads: u64,
    /// Origin of the token, until the server has accepted it.
    pub(in crate::auth) unproven: Option<Source>,
    /// Number of completed operations.
    pub(in crate::auth) attempt: u64,
    /// Result of the latest operation.
    last: Result<(), AuthError>,
    /// Set while the token could not be stored: as long as the store content is unchanged, the token in memory is
    /// newer.
    pub(in crate::auth) unkept: Option<Unkept>,
    /// Whether the last operation could redirect a user.
    could_ask: bool,
    /// Number of step-ups per requested scope set that was not granted.
    step_ups: HashMap<String, usize>,
    /// Number of step-ups since the last successful response.
    in_a_row: usize,
    nonce: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::auth) enum Source {
    /// A refresh.
    Refresh,
    /// A sign-in by a user, or a grant to the client itself.
    SignIn,
}

/// Operation on the token.
#[derive(Clone)]
pub(in crate::auth) enum Work {
    Load,
    Renew,
    /// Handles a challenge of the server. The second field is the origin of the rejected token, if no server accepted
    /// it before.
    Answer(Challenge, Option<Source>),
}

impl Account {
    pub(in crate::auth) fn new(key: String) -> Self {
        let live = Live {
            record: None,
            is_loaded: false,
            reloads: 0,
            unproven: None,
            attempt: 0,
            last: Ok(()),
            unkept: None,
            could_ask: false,
            step_ups: HashMap::new(),
            in_a_row: 0,
            nonce: None,
        };
        Account {
            key,
            live: Mutex::new(live),
            turn: Arc::default(),
            asking: Arc::default(),
            waiting: watch::Sender::new(0),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Returns the stored token and the number of completed operations.
    pub(in crate::auth) fn current(&self) -> (Option<Arc<Record>>, u64) {
        let live = lock(&self.live);
        (live.record.clone(), live.attempt)
    }

    /// Returns the credentials for a request.
    pub(in crate::auth) fn credentials(
        &self,
        request: Request<'_>,
        profile: &Profile,
    ) -> Result<Credentials, AuthError> {
        let (record, mark) = self.current();
        let Some((record, token)) =
            record.as_deref().and_then(|record| Some((record, record.access_token.as_ref()?)))
        else {
            return Ok(Credentials { headers: Vec::new(), mark });
        };
        let scheme = if record.dpop { "DPoP" } else { "Bearer" };
        let mut headers = vec![(AUTHORIZATION, header_value(&format!("{scheme} {}", token.expose()))?)];
        if let Some(key) = record.key().filter(|_| record.dpop) {
            let nonce = lock(&self.live).nonce.clone();
            let (url, token) = (request.target.url(), Some(token.expose()));
            let proof = dpop::proof(key, request.method, &url, token, nonce.as_deref(), now(profile))?;
            headers.push((dpop::PROOF, header_value(&proof)?));
        }
        Ok(Credentials { headers, mark })
    }

    /// Fails if the server rejected a token that a sign-in has just issued: another token would not help.
    pub(in crate::auth) fn check_proven(
        &self,
        mark: u64,
        now: u64,
        challenge: &Challenge,
    ) -> Result<(), AuthError> {
        let live = lock(&self.live);
        let is_new = live.attempt == mark && live.unproven == Some(Source::SignIn);
        match live.record.as_ref().filter(|record| is_new && !record.is_over(now)) {
            None => Ok(()),
            Some(record) => {
                let issuer = quoted(&record.issuer);
                let token = record.access_token.as_ref().map_or("", Secret::expose);
                let said = challenge.error_description.as_deref().filter(|said| !said.contains(token));
                let said = said.map(|said| format!(" (`{}`)", quoted(said))).unwrap_or_default();
                let text = format!(
                    "the server rejected the token that `{issuer}` has just issued for it{said}: contact \
                     the operator of the server"
                );
                Err(AuthError::new(AuthErrorKind::Token, text))
            }
        }
    }

    /// Counts a step-up and fails if it is pointless: the scope is already granted, or was requested too often.
    pub(in crate::auth) fn step_up(&self, challenge: &Challenge) -> Result<(), AuthError> {
        let mut live = lock(&self.live);
        let wanted = challenge.scope.clone().unwrap_or_default();
        let granted = live.record.as_ref().map(|record| Scopes::read(&record.granted)).unwrap_or_default();
        if live.step_ups.len() >= MOST_COUNTED {
            live.step_ups.clear();
        }
        live.in_a_row += 1;
        let tries = live.step_ups.entry(wanted.to_string()).or_default();
        *tries += 1;
        let tries = (*tries).max(live.in_a_row);
        let (wanted_text, has_them) = (wanted.to_string(), !wanted.is_empty() && granted.covers(&wanted));
        if has_them || tries > MOST_STEP_UPS {
            let why = if has_them { "the token already has it" } else { "it was requested and not granted" };
            let what = match &*wanted_text {
                "" => "more than the token allows".to_owned(),
                scopes => format!("the scope `{}`", quoted(scopes)),
            };
            let text = format!(
                "the server requires {what} for this request, but {why}: contact the operator of the server"
            );
            return Err(
                AuthError::new(AuthErrorKind::Scope, text).with_code(Some("insufficient_scope".to_owned()))
            );
        }
        Ok(())
    }

    /// Runs an operation on the token, unless another one has completed since `mark`; then returns its result.
    pub(in crate::auth) async fn work(
        self: &Arc<Self>,
        work: Work,
        mark: u64,
        profile: &Arc<Profile>,
        request: Request<'_>,
        may_ask: bool,
    ) -> Result<(), AuthError> {
        let (done, result) = oneshot::channel();
        let (account, profile) = (self.clone(), profile.clone());
        let (server, egress) = (request.server.clone(), request.egress.clone());
        let _waits = Waits::new(&self.waiting);
        crate::server::start(&Handle::current(), async move {
            let mut held = Held::default();
            // An operation that certainly needs a user waits for a running sign-in first, and may then reuse its token.
            if may_ask && account.needs_person(&work) {
                held.asking = Some(account.asking.clone().lock_owned().await);
            }
            held.turn = Some(account.turn.clone().lock_owned().await);
            let is_open = account.is_open(mark, may_ask);
            if is_open {
                let reloads = lock(&account.live).reloads;
                let outcome = account.renew(work, &profile, &server, &egress, may_ask, &mut held).await;
                match outcome {
                    Ok(Some((record, source))) => account.settle(record, source, Ok(())),
                    Ok(None) => {}
                    Err(error) => account.settle(account.current().0, None, Err(error)),
                }
                // An abandoned sign-in says nothing about requests that arrived later.
                let is_abandoned = account.is_abandoned.swap(false, Ordering::Relaxed);
                let mut live = lock(&account.live);
                live.could_ask = may_ask && !is_abandoned;
                live.is_loaded &= live.reloads == reloads;
            }
            let last = lock(&account.live).last.clone();
            let _ = done.send(last); // the caller may have been cancelled
            if is_open {
                keep_on(account, held, profile).await;
            }
        });
        let gone = |_| AuthError::new(AuthErrorKind::Store, "the sign-in task was aborted");
        result.await.map_err(gone)?
    }

    /// Returns whether the operation can succeed only with a sign-in.
    fn needs_person(&self, work: &Work) -> bool {
        let Work::Answer(challenge, source) = work else { return false };
        let record = self.current().0;
        let can_renew = record.is_some_and(|record| record.refresh_token.is_some());
        challenge.wants_more_scope() || *source == Some(Source::Refresh) || !can_renew
    }

    /// Returns whether no operation since `mark` counts. A failure for lack of a redirect handler does not count for
    /// callers that have one.
    fn is_open(&self, mark: u64, may_ask: bool) -> bool {
        let live = lock(&self.live);
        let is_about_person =
            |error: &AuthError| matches!(error.kind(), AuthErrorKind::Nobody | AuthErrorKind::Person);
        let lacked_person = !live.could_ask && live.last.as_ref().is_err_and(is_about_person);
        live.attempt == mark || (may_ask && lacked_person)
    }

    /// Records the response to a request that was sent with the token of `mark`.
    pub(in crate::auth) fn answered(&self, mark: u64, status: u16, nonce: Option<&str>) {
        let mut live = lock(&self.live);
        if let Some(nonce) = nonce {
            live.nonce = Some(nonce.to_owned());
        }
        if status != 401 && mark == live.attempt {
            live.unproven = None;
        }
        if (200..300).contains(&status) {
            live.in_a_row = 0;
        }
    }

    pub(in crate::auth) fn settle(
        &self,
        record: Option<Arc<Record>>,
        source: Option<Source>,
        last: Result<(), AuthError>,
    ) {
        let mut live = lock(&self.live);
        live.attempt += 1;
        live.is_loaded = true;
        let granted = record.as_ref().map(|record| Scopes::read(&record.granted)).unwrap_or_default();
        live.step_ups.retain(|wanted, _| wanted.is_empty() || !granted.covers(&Scopes::read(wanted)));
        (live.record, live.unproven, live.last) = (record, source, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_only_so_often() {
        let account = Account::new(String::new());
        let wants = |scope: &str| {
            let challenge = Challenge { scope: Some(Scopes::read(scope)), ..Challenge::default() };
            account.step_up(&challenge).is_ok()
        };
        assert!(wants("a") && wants("b"));
        assert!(!wants("c"), "however the server calls it");
        account.answered(0, 200, None);
        assert!(wants("a"));
        account.answered(0, 200, None);
        assert!(!wants("a"), "it was not given twice");
    }
}
