//! What is known of one server: the token in use, and the one road to another.
//!
//! Whoever needs a token waits for its turn, sees whether somebody before them got one already, and only then asks.
//! Asking runs to its end even if the one who asked has gone: a token that renews others works once, and what came
//! in its place must be kept. It is kept before it is used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use http::HeaderName;
use http::header::{AUTHORIZATION, HeaderMap};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::challenge::Challenge;
use super::error::{AuthError, AuthErrorKind};
use super::flow::{Event, Flow, Start};
use super::oauth::{Grant, OAuth, Profile};
use super::record::Record;
use super::run::{now, run};
use super::scheme::{Authorize, Credentials, Refusal, Request, header_value};
use super::scopes::Scopes;
use super::{AuthFuture, boxed, dpop};
use crate::egress::{Egress, Target};
use crate::sync::lock;

/// How often more is asked for on behalf of the same operation.
const MOST_STEP_UPS: usize = 2;
const DPOP: HeaderName = HeaderName::from_static("dpop");
const NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// One server, as one account.
pub(super) struct Account {
    key: String,
    live: Mutex<Live>,
    turn: tokio::sync::Mutex<()>,
}

struct Live {
    record: Option<Arc<Record>>,
    /// How often something was tried, and what came of it.
    attempt: u64,
    last: Result<(), AuthError>,
    /// By what was asked for, how often.
    step_ups: HashMap<String, usize>,
    nonce: Option<String>,
}

/// What is to be done.
#[derive(Clone)]
enum Work {
    Load,
    Renew,
    Answer(Challenge),
}

impl OAuth {
    fn account_of(&self, server: &Target) -> Arc<Account> {
        let key = self.key_of(server);
        let mut accounts = lock(&self.accounts);
        let account = accounts.entry(key.clone()).or_insert_with(|| {
            let live = Live { record: None, attempt: 0, last: Ok(()), step_ups: HashMap::new(), nonce: None };
            Arc::new(Account { key, live: Mutex::new(live), turn: tokio::sync::Mutex::new(()) })
        });
        account.clone()
    }

    fn key_of(&self, server: &Target) -> String {
        match &*self.profile.account {
            "" => server.to_string(),
            account => format!("{server} {account}"),
        }
    }

    async fn credentials_for(&self, request: Request<'_>) -> Result<Credentials, AuthError> {
        let (account, profile) = (self.account_of(request.server), &self.profile);
        if account.now().1 == 0 {
            account.work(Work::Load, 0, profile, request, false).await?;
        }
        let (record, mark) = account.now();
        if let Some(record) = record.filter(|record| record.can_be_renewed(now(profile))) {
            let renewed = account.work(Work::Renew, mark, profile, request, false).await;
            // It is renewed early: as long as it is good, it does not matter that nobody answers.
            if let Err(error) = renewed
                && (error.kind() != AuthErrorKind::Unreachable || record.is_over(now(profile)))
            {
                return Err(error);
            }
        }
        account.credentials(request, profile)
    }

    async fn answer(&self, request: Request<'_>, refusal: Refusal) -> Result<bool, AuthError> {
        let (account, profile) = (self.account_of(request.server), &self.profile);
        let Refusal { status, challenge, mark, .. } = refusal;
        match status {
            401 if challenge.error.as_deref() == Some("use_dpop_nonce") => return Ok(true),
            401 => {}
            403 if challenge.wants_more_scope() => account.step_up(&challenge, mark)?,
            _ => return Ok(false),
        }
        // A person is asked for what somebody wants to do, not for a stream that waits.
        let may_ask = profile.person.is_some() && request.method == "POST";
        account.work(Work::Answer(challenge), mark, profile, request, may_ask).await?;
        Ok(true)
    }

    /// Forgets the sign-in to a server, and gives its tokens back if the authorization server takes them (RFC 7009).
    pub async fn sign_out(&self, url: &str, egress: &Egress) -> Result<(), AuthError> {
        let server =
            Target::typed(url).map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))?;
        let account = self.account_of(&server);
        let _turn = account.turn.lock().await;
        let _lease = self.profile.store.lock(&account.key).await?;
        let kept = self.profile.store.load(&account.key).await?;
        self.profile.store.remove(&account.key).await?;
        account.settle(None, Ok(()));
        match kept.as_ref().map(Record::read) {
            Some(Ok(record)) => super::revocation::revoke(&record, &self.profile, &server, egress).await,
            _ => Ok(()),
        }
    }
}

impl Authorize for OAuth {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(self.credentials_for(request))
    }

    fn refused<'a>(&'a self, request: Request<'a>, refusal: Refusal) -> AuthFuture<'a, bool> {
        boxed(self.answer(request, refusal))
    }

    fn answered(&self, request: Request<'_>, headers: &HeaderMap) {
        if let Some(nonce) = headers.get(NONCE).and_then(|nonce| nonce.to_str().ok()) {
            lock(&self.account_of(request.server).live).nonce = Some(nonce.to_owned());
        }
    }
}

impl Account {
    fn now(&self) -> (Option<Arc<Record>>, u64) {
        let live = lock(&self.live);
        (live.record.clone(), live.attempt)
    }

    /// What a request is sent with now.
    fn credentials(&self, request: Request<'_>, profile: &Profile) -> Result<Credentials, AuthError> {
        let (record, mark) = self.now();
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
            headers.push((DPOP, header_value(&proof)?));
        }
        Ok(Credentials { headers, mark })
    }

    /// Whether it makes sense to ask for more.
    fn step_up(&self, challenge: &Challenge, mark: u64) -> Result<(), AuthError> {
        let mut live = lock(&self.live);
        if live.attempt != mark {
            return Ok(()); // with another token than the one in use
        }
        let wanted = challenge.scope.clone().unwrap_or_default();
        let granted = live.record.as_ref().map(|record| Scopes::read(&record.granted)).unwrap_or_default();
        let tries = live.step_ups.entry(wanted.to_string()).or_default();
        *tries += 1;
        let (wanted_text, has_them) = (wanted.to_string(), !wanted.is_empty() && granted.covers(&wanted));
        if has_them || *tries > MOST_STEP_UPS {
            let why = if has_them { "the token has it already" } else { "it was asked for and not given" };
            let what = match &*wanted_text {
                "" => "more than the token allows".to_owned(),
                scopes => format!("the scope `{}`", super::error::quoted(scopes)),
            };
            let text = format!("the server wants {what} for this, and {why}: ask whoever runs the server");
            return Err(AuthError::new(AuthErrorKind::Scope, text).with_code("insufficient_scope"));
        }
        Ok(())
    }

    /// Does something about the token, unless somebody did since `mark`; then that counts.
    async fn work(
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
        crate::server::start(&Handle::current(), async move {
            let _turn = account.turn.lock().await;
            let (_, attempt) = account.now();
            if attempt == mark {
                let outcome = account.renew(work, &profile, &server, &egress, may_ask).await;
                match outcome {
                    Ok(record) => account.settle(record, Ok(())),
                    Err(error) => account.settle(account.now().0, Err(error)),
                }
            }
            let last = lock(&account.live).last.clone();
            let _ = done.send(last); // the one who asked may have gone
        });
        let gone = |_| AuthError::new(AuthErrorKind::Store, "the sign-in was ended from outside");
        result.await.map_err(gone)?
    }

    fn settle(&self, record: Option<Arc<Record>>, last: Result<(), AuthError>) {
        let mut live = lock(&self.live);
        live.attempt += 1;
        (live.record, live.last) = (record, last);
    }

    /// What is known afterwards.
    async fn renew(
        &self,
        work: Work,
        profile: &Arc<Profile>,
        server: &Target,
        egress: &Egress,
        may_ask: bool,
    ) -> Result<Option<Arc<Record>>, AuthError> {
        let store = &profile.store;
        let _lease = store.lock(&self.key).await?;
        let kept = match store.load(&self.key).await?.as_ref().map(Record::read) {
            Some(Err(error)) => {
                tracing::warn!(%error, "a sign-in that was kept is not used");
                None
            }
            kept => kept.transpose()?,
        };
        let known = self.now().0;
        let is_news = |kept: &Record| {
            kept.access_token.is_some() && known.as_ref().is_none_or(|known| !known.is_same_token(kept))
        };
        if matches!(work, Work::Load)
            || kept.as_ref().is_some_and(|kept| is_news(kept) && !kept.is_stale(now(profile)))
        {
            return Ok(kept.map(Arc::new)); // another process got a token meanwhile
        }
        let person = may_ask && matches!(profile.grant, Grant::Person);
        let earlier = kept.or_else(|| known.map(Arc::unwrap_or_clone));
        let start = |challenge, earlier| Start {
            profile: profile.clone(),
            server: server.clone(),
            challenge,
            earlier,
            person,
        };
        let record = match (work, earlier) {
            (Work::Renew, Some(earlier)) => {
                let (mut flow, claim) = Flow::refresh(start(Challenge::default(), None), earlier.clone());
                let Some(claim) = claim else { return Ok(Some(Arc::new(earlier))) };
                let first = flow.claim(claim, None, now(profile));
                match run(&mut flow, first, profile, server, egress).await {
                    // It is over: the server is asked without a token, and says what it wants.
                    Err(error) if error.code().is_some() => earlier.without_tokens(),
                    result => result?,
                }
            }
            (Work::Answer(challenge), earlier) => {
                let mut flow = Flow::new(start(challenge, earlier));
                let first = flow.next(Event::Begin, now(profile));
                run(&mut flow, first, profile, server, egress).await?
            }
            (Work::Load | Work::Renew, earlier) => return Ok(earlier.map(Arc::new)),
        };
        store.save(&self.key, record.write()?).await?;
        Ok(Some(Arc::new(record)))
    }
}
