//! OAuth token of one account at one server, and the coordination of the callers that need it.
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

use super::OAuthConfig;
use super::persist::{UnsavedToken, retry_save};
use super::runner::now;
use super::waiters::WaiterCount;
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind, sanitize};
use crate::auth::flow::dpop;
use crate::auth::scheme::{Credentials, Request, header_value};
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;
use crate::auth::store::record::TokenRecord;
use crate::lock::lock;

/// Maximum number of step-up authorizations for the same scopes, and in a row without a success.
const MAX_STEP_UPS: usize = 2;
/// Maximum number of scope sets for which step-up authorizations are counted.
const MAX_STEP_UP_ENTRIES: usize = 64;

pub(in crate::auth) type AccountMutex = Arc<tokio::sync::Mutex<()>>;

/// Locks of an account that the running token operation holds. Lock order: the sign-in lock before the update lock.
#[derive(Default)]
pub(in crate::auth) struct AccountLocks {
    pub(in crate::auth) update: Option<OwnedMutexGuard<()>>,
    pub(in crate::auth) sign_in: Option<OwnedMutexGuard<()>>,
}

/// OAuth token of one account at one server, with the locks and waiters of its updates.
pub(in crate::auth) struct Account {
    pub(in crate::auth) key: String,
    pub(in crate::auth) state: Mutex<TokenState>,
    /// Lock held while the token changes, but not while a user signs in.
    pub(in crate::auth) update_lock: AccountMutex,
    /// Lock held while a user signs in, so that only one sign-in runs.
    pub(in crate::auth) sign_in_lock: AccountMutex,
    /// Number of requests that wait for a token.
    pub(in crate::auth) waiters: watch::Sender<usize>,
    /// Whether the last sign-in was abandoned because no request waited for it any more.
    pub(in crate::auth) is_abandoned: AtomicBool,
}

pub(in crate::auth) struct TokenState {
    record: Option<Arc<TokenRecord>>,
    /// Whether `record` is the content of the token store, as far as is known.
    pub(in crate::auth) is_loaded: bool,
    /// Number of reload requests and failed reads of the token store.
    pub(in crate::auth) reloads: u64,
    /// Origin of the token, until the server has accepted it.
    pub(in crate::auth) unverified_origin: Option<TokenOrigin>,
    /// Number of completed operations on the token.
    pub(in crate::auth) generation: u64,
    /// Result of the latest operation on the token: load, refresh or reaction to a challenge.
    last_result: Result<(), AuthError>,
    /// State of a token that could not be stored. It is newer than the store while the store is unchanged.
    pub(in crate::auth) unsaved: Option<UnsavedToken>,
    /// Whether the last token operation could redirect a user.
    redirect_allowed: bool,
    /// Number of step-ups per requested scope set that was not granted.
    step_ups: HashMap<String, usize>,
    /// Number of step-ups since the last successful response.
    consecutive_step_ups: usize,
    nonce: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::auth) enum TokenOrigin {
    /// A refresh of the previous token.
    Refresh,
    /// A sign-in by a user, or a grant to the client itself.
    SignIn,
}

/// Operation that an account performs on its OAuth token: load, refresh, or reaction to a challenge.
#[derive(Clone)]
pub(in crate::auth) enum TokenAction {
    Load,
    Refresh,
    /// Obtains another token after a challenge. Contains the origin of the rejected token, if it was never accepted.
    HandleChallenge(Challenge, Option<TokenOrigin>),
}

impl Account {
    pub(in crate::auth) fn new(key: String) -> Self {
        let live = TokenState {
            record: None,
            is_loaded: false,
            reloads: 0,
            unverified_origin: None,
            generation: 0,
            last_result: Ok(()),
            unsaved: None,
            redirect_allowed: false,
            step_ups: HashMap::new(),
            consecutive_step_ups: 0,
            nonce: None,
        };
        Account {
            key,
            state: Mutex::new(live),
            update_lock: Arc::default(),
            sign_in_lock: Arc::default(),
            waiters: watch::Sender::new(0),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Returns the current token record and its generation: the number of completed token operations.
    pub(in crate::auth) fn current(&self) -> (Option<Arc<TokenRecord>>, u64) {
        let live = lock(&self.state);
        (live.record.clone(), live.generation)
    }

    /// Returns the `Authorization` header, and `DPoP` proof if needed, for a request.
    pub(in crate::auth) fn credentials(
        &self,
        request: Request<'_>,
        profile: &OAuthConfig,
    ) -> Result<Credentials, AuthError> {
        let (record, generation) = self.current();
        let Some((record, token)) =
            record.as_deref().and_then(|record| Some((record, record.access_token.as_ref()?)))
        else {
            return Ok(Credentials { headers: Vec::new(), generation });
        };
        let scheme = if record.dpop { "DPoP" } else { "Bearer" };
        let mut headers = vec![(AUTHORIZATION, header_value(&format!("{scheme} {}", token.expose()))?)];
        if let Some(key) = record.key().filter(|_| record.dpop) {
            let nonce = lock(&self.state).nonce.clone();
            let (url, token) = (request.target.url(), Some(token.expose()));
            let proof = dpop::proof(key, request.method, &url, token, nonce.as_deref(), now(profile))?;
            headers.push((dpop::PROOF_HEADER, header_value(&proof)?));
        }
        Ok(Credentials { headers, generation })
    }

    /// Fails if the server rejected a token that a sign-in has just issued: another token would not help.
    pub(in crate::auth) fn check_not_just_issued(
        &self,
        generation: u64,
        now: u64,
        challenge: &Challenge,
    ) -> Result<(), AuthError> {
        let live = lock(&self.state);
        let is_new = live.generation == generation && live.unverified_origin == Some(TokenOrigin::SignIn);
        match live.record.as_ref().filter(|record| is_new && !record.is_expired(now)) {
            None => Ok(()),
            Some(record) => {
                let issuer = sanitize(&record.issuer);
                let token = record.access_token.as_ref().map_or("", Secret::expose);
                let description = challenge.error_description.as_deref().filter(|text| !text.contains(token));
                let description =
                    description.map(|text| format!(" (`{}`)", sanitize(text))).unwrap_or_default();
                let text = format!(
                    "the server rejected the token that `{issuer}` has just issued for it{description}: contact \
                     the operator of the server"
                );
                Err(AuthError::new(AuthErrorKind::Token, text))
            }
        }
    }

    /// Counts a step-up and fails if it is pointless: the scope is already granted, or was requested too often.
    pub(in crate::auth) fn count_step_up(&self, challenge: &Challenge) -> Result<(), AuthError> {
        let mut live = lock(&self.state);
        let required = challenge.scope.clone().unwrap_or_default();
        let granted = live.record.as_ref().map(|record| Scopes::parse(&record.granted)).unwrap_or_default();
        if live.step_ups.len() >= MAX_STEP_UP_ENTRIES {
            live.step_ups.clear();
        }
        live.consecutive_step_ups += 1;
        let attempts = live.step_ups.entry(required.to_string()).or_default();
        *attempts += 1;
        let attempts = (*attempts).max(live.consecutive_step_ups);
        let has_required = !required.is_empty() && granted.covers(&required);
        if has_required || attempts > MAX_STEP_UPS {
            let reason = if has_required {
                "the token already has it"
            } else {
                "the authorization server did not grant it"
            };
            let requirement = match &*required.to_string() {
                "" => "access that the token does not give".to_owned(),
                scopes => format!("the scope `{}`", sanitize(scopes)),
            };
            let text = format!(
                "for this request the server requires {requirement}, but {reason}: contact the operator of the server"
            );
            let code = Some("insufficient_scope".to_owned());
            return Err(AuthError::new(AuthErrorKind::Scope, text).with_code(code));
        }
        Ok(())
    }

    /// Runs an operation on the token, unless another one has completed since `generation`; then returns its result.
    pub(in crate::auth) async fn run_action(
        self: &Arc<Self>,
        work: TokenAction,
        generation: u64,
        profile: &Arc<OAuthConfig>,
        request: Request<'_>,
        may_ask: bool,
    ) -> Result<(), AuthError> {
        let (done, result) = oneshot::channel();
        let (account, profile) = (self.clone(), profile.clone());
        let (server, egress) = (request.server.clone(), request.egress.clone());
        let _waits = WaiterCount::new(&self.waiters);
        crate::server::spawn(&Handle::current(), async move {
            let mut locks = AccountLocks::default();
            // An operation that certainly needs a user waits for a running sign-in first, and may then reuse its token.
            if may_ask && account.needs_sign_in(&work) {
                locks.sign_in = Some(account.sign_in_lock.clone().lock_owned().await);
            }
            locks.update = Some(account.update_lock.clone().lock_owned().await);
            let is_open = account.is_pending(generation, may_ask);
            if is_open {
                let reloads = lock(&account.state).reloads;
                let outcome =
                    account.refresh_or_authorize(work, &profile, &server, &egress, may_ask, &mut locks).await;
                match outcome {
                    Ok(Some((record, source))) => account.set_result(record, source, Ok(())),
                    Ok(None) => {}
                    Err(error) => account.set_result(account.current().0, None, Err(error)),
                }
                // An abandoned sign-in says nothing about requests that arrived later.
                let is_abandoned = account.is_abandoned.swap(false, Ordering::Relaxed);
                let mut live = lock(&account.state);
                live.redirect_allowed = may_ask && !is_abandoned;
                live.is_loaded &= live.reloads == reloads;
            }
            let last = lock(&account.state).last_result.clone();
            let _ = done.send(last); // the caller may have been cancelled
            if is_open {
                retry_save(account, locks, profile).await;
            }
        });
        let gone = |_| AuthError::new(AuthErrorKind::Store, "the sign-in task was aborted");
        result.await.map_err(gone)?
    }

    /// Returns whether a token operation can succeed only if the user signs in.
    fn needs_sign_in(&self, work: &TokenAction) -> bool {
        let TokenAction::HandleChallenge(challenge, source) = work else { return false };
        let record = self.current().0;
        let can_renew = record.is_some_and(|record| record.refresh_token.is_some());
        challenge.is_insufficient_scope() || *source == Some(TokenOrigin::Refresh) || !can_renew
    }

    /// Returns whether a token operation must still run: none has completed since `generation`, or only one that failed
    /// for lack of a redirect handler, which this caller has.
    fn is_pending(&self, generation: u64, may_ask: bool) -> bool {
        let live = lock(&self.state);
        let user_errors = [AuthErrorKind::SignInRequired, AuthErrorKind::UserAbandoned];
        let involves_user = |error: &AuthError| user_errors.contains(&error.kind());
        let needed_user = !live.redirect_allowed && live.last_result.as_ref().is_err_and(involves_user);
        live.generation == generation || (may_ask && needed_user)
    }

    /// Records the status and `DPoP` nonce of a response to a request that was sent with the token of `generation`.
    pub(in crate::auth) fn on_response(&self, generation: u64, status: u16, nonce: Option<&str>) {
        let mut live = lock(&self.state);
        if let Some(nonce) = nonce {
            live.nonce = Some(nonce.to_owned());
        }
        if status != 401 && generation == live.generation {
            live.unverified_origin = None;
        }
        if (200..300).contains(&status) {
            live.consecutive_step_ups = 0;
        }
    }

    pub(in crate::auth) fn set_result(
        &self,
        record: Option<Arc<TokenRecord>>,
        source: Option<TokenOrigin>,
        last: Result<(), AuthError>,
    ) {
        let mut live = lock(&self.state);
        live.generation += 1;
        live.is_loaded = true;
        let granted = record.as_ref().map(|record| Scopes::parse(&record.granted)).unwrap_or_default();
        live.step_ups.retain(|required, _| required.is_empty() || !granted.covers(&Scopes::parse(required)));
        (live.record, live.unverified_origin, live.last_result) = (record, source, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_only_so_often() {
        let account = Account::new(String::new());
        let is_allowed = |scope: &str| {
            let challenge = Challenge { scope: Some(Scopes::parse(scope)), ..Challenge::default() };
            account.count_step_up(&challenge).is_ok()
        };
        assert!(is_allowed("a") && is_allowed("b"));
        assert!(!is_allowed("c"), "however the server calls it");
        account.on_response(0, 200, None);
        assert!(is_allowed("a"));
        account.on_response(0, 200, None);
        assert!(!is_allowed("a"), "it was not given twice");
    }
}
