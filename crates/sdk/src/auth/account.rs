//! What is known of one server: the token in use, and the one road to another.
//!
//! Whoever needs a token waits for its turn, sees whether somebody before them got one already, and only then asks.
//! Asking runs to its end even if the one who asked has gone: a token that renews others works once, and what came
//! in its place must be kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::header::AUTHORIZATION;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, oneshot, watch};

use super::challenge::Challenge;
use super::dpop;
use super::error::{AuthError, AuthErrorKind, quoted};
use super::keep::{Unkept, keep_on};
use super::oauth::Profile;
use super::record::Record;
use super::run::now;
use super::scheme::{Credentials, Request, header_value};
use super::scopes::Scopes;
use super::secret::Secret;
use super::waits::Waits;
use crate::sync::lock;

/// How often more is asked for on behalf of the same operation.
const MOST_STEP_UPS: usize = 2;
/// How many sets of scopes are counted.
const MOST_COUNTED: usize = 64;

pub(super) type Turns = Arc<tokio::sync::Mutex<()>>;

/// What the one who is at it holds. Who waits for both waits for `asking` first.
#[derive(Default)]
pub(super) struct Held {
    pub(super) turn: Option<OwnedMutexGuard<()>>,
    pub(super) asking: Option<OwnedMutexGuard<()>>,
}

/// One server, as one account.
pub(super) struct Account {
    pub(super) key: String,
    pub(super) live: Mutex<Live>,
    /// Held by who changes anything, but not while a person is asked.
    pub(super) turn: Turns,
    /// Held by who asks a person.
    pub(super) asking: Turns,
    /// How many wait for a token.
    pub(super) waiting: watch::Sender<usize>,
    /// Whether the last sign-in was given up because nobody did.
    pub(super) is_abandoned: AtomicBool,
}

pub(super) struct Live {
    record: Option<Arc<Record>>,
    /// Whether that is what the store has, as far as is known.
    pub(super) is_loaded: bool,
    /// How often the store was said to have something else, or could not be read.
    pub(super) reloads: u64,
    /// Where the token came from, as long as the server has not taken it.
    pub(super) unproven: Option<Source>,
    /// How often something was tried, and what came of it.
    pub(super) attempt: u64,
    last: Result<(), AuthError>,
    /// What the store had when what is known could not be kept: as long as it has that, what is known is newer.
    pub(super) unkept: Option<Unkept>,
    /// Whether a person could have been asked.
    could_ask: bool,
    /// By what was asked for and not given, how often.
    step_ups: HashMap<String, usize>,
    /// How often more was asked for since the server last said yes.
    in_a_row: usize,
    nonce: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Another token was renewed.
    Refresh,
    /// Somebody signed in, or the client proved who it is.
    SignIn,
}

/// What is to be done.
#[derive(Clone)]
pub(super) enum Work {
    Load,
    Renew,
    /// The server wants something, and did not take a token that it had not taken before; where that came from.
    Answer(Challenge, Option<Source>),
}

impl Account {
    pub(super) fn new(key: String) -> Self {
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

    /// What is known, and how often something was tried.
    pub(super) fn current(&self) -> (Option<Arc<Record>>, u64) {
        let live = lock(&self.live);
        (live.record.clone(), live.attempt)
    }

    /// What a request is sent with now.
    pub(super) fn credentials(
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

    /// Whether another token may help: not if the server did not even take one that was just given.
    pub(super) fn check_proven(&self, mark: u64, now: u64, challenge: &Challenge) -> Result<(), AuthError> {
        let live = lock(&self.live);
        let is_new = live.attempt == mark && live.unproven == Some(Source::SignIn);
        match live.record.as_ref().filter(|record| is_new && !record.is_over(now)) {
            None => Ok(()),
            Some(record) => {
                let issuer = quoted(&record.issuer);
                let token = record.access_token.as_ref().map_or("", Secret::expose);
                let said = challenge.error_description.as_deref().filter(|said| !said.contains(token));
                let said = said.map(|said| format!(", and says `{}`", quoted(said))).unwrap_or_default();
                let text = format!(
                    "the server does not take the token that `{issuer}` has just given for it{said}: ask whoever runs the \
                     server"
                );
                Err(AuthError::new(AuthErrorKind::Token, text))
            }
        }
    }

    /// Whether it makes sense to ask for more. Counts each time that it does.
    pub(super) fn step_up(&self, challenge: &Challenge) -> Result<(), AuthError> {
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
            let why = if has_them { "the token has it already" } else { "it was asked for and not given" };
            let what = match &*wanted_text {
                "" => "more than the token allows".to_owned(),
                scopes => format!("the scope `{}`", quoted(scopes)),
            };
            let text = format!("the server wants {what} for this, and {why}: ask whoever runs the server");
            return Err(
                AuthError::new(AuthErrorKind::Scope, text).with_code(Some("insufficient_scope".to_owned()))
            );
        }
        Ok(())
    }

    /// Does something about the token, unless somebody did since `mark`; then that counts.
    pub(super) async fn work(
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
            // Who has to ask anyway waits until nobody is asked, and need not do it then.
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
                // Whoever came since has not been asked.
                let is_abandoned = account.is_abandoned.swap(false, Ordering::Relaxed);
                let mut live = lock(&account.live);
                live.could_ask = may_ask && !is_abandoned;
                live.is_loaded &= live.reloads == reloads;
            }
            let last = lock(&account.live).last.clone();
            let _ = done.send(last); // the one who asked may have gone
            if is_open {
                keep_on(account, held, profile).await;
            }
        });
        let gone = |_| AuthError::new(AuthErrorKind::Store, "the sign-in was ended from outside");
        result.await.map_err(gone)?
    }

    /// Whether nothing else can help.
    fn needs_person(&self, work: &Work) -> bool {
        let Work::Answer(challenge, source) = work else { return false };
        let record = self.current().0;
        let can_renew = record.is_some_and(|record| record.refresh_token.is_some());
        challenge.wants_more_scope() || *source == Some(Source::Refresh) || !can_renew
    }

    /// Whether nothing has happened since `mark` that counts: that nobody could be asked means little to those who can.
    fn is_open(&self, mark: u64, may_ask: bool) -> bool {
        let live = lock(&self.live);
        let is_about_person =
            |error: &AuthError| matches!(error.kind(), AuthErrorKind::Nobody | AuthErrorKind::Person);
        let lacked_person = !live.could_ask && live.last.as_ref().is_err_and(is_about_person);
        live.attempt == mark || (may_ask && lacked_person)
    }

    /// The server answered something that was sent with the token of `mark`.
    pub(super) fn answered(&self, mark: u64, status: u16, nonce: Option<&str>) {
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

    pub(super) fn settle(
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
