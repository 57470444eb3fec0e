//! Token refresh and reauthorization. Tokens obtained by other processes are reused, and a new token is stored before
//! it is used.

use std::sync::Arc;

use super::account::{Account, Held, Source, Work};
use super::runner::{Runner, now};
use super::{Grant, Profile};
use crate::auth::challenge::Challenge;
use crate::auth::error::AuthError;
use crate::auth::flow::{Action, Event, Flow, Start};
use crate::auth::store::record::Record;
use crate::egress::{Egress, Target};
use crate::lock::lock;

/// The resulting record and the origin of a new token; `None` if another caller has completed the operation.
type Outcome = Option<(Option<Arc<Record>>, Option<Source>)>;

impl Account {
    pub(in crate::auth) async fn renew(
        &self,
        work: Work,
        profile: &Arc<Profile>,
        server: &Target,
        egress: &Egress,
        may_ask: bool,
        held: &mut Held,
    ) -> Result<Outcome, AuthError> {
        if matches!(work, Work::Load) {
            return Ok(Some((self.load(profile).await, None)));
        }
        let lease = profile.store.lock(&self.key).await?;
        let kept = profile.store.load(&self.key).await?;
        let (known, attempt) = self.current();
        // An empty store means that a user has signed out, so the token in memory must not be refreshed, unless it
        // could not be stored and is newer than the store.
        let (before, is_ahead) = (kept.clone(), self.is_ahead_of(kept.as_ref()));
        let known = if kept.is_none() && !is_ahead {
            known.map(|known| Arc::new(Arc::unwrap_or_clone(known).without_tokens()))
        } else {
            known
        };
        let kept = kept.filter(|_| !is_ahead).and_then(|kept| readable(Record::read(&kept)));
        let is_news = |kept: &Record| {
            kept.access_token.is_some() && known.as_ref().is_none_or(|known| !known.is_same_token(kept))
        };
        if kept.as_ref().is_some_and(|kept| is_news(kept) && !kept.is_stale(now(profile))) {
            return Ok(Some((kept.map(Arc::new), None))); // another process obtained a token
        }
        let earlier = kept.or_else(|| known.map(Arc::unwrap_or_clone));
        let person = may_ask && matches!(profile.grant, Grant::Person);
        let start = |challenge, earlier| Start {
            profile: profile.clone(),
            server: server.clone(),
            challenge,
            earlier,
            person,
        };
        let mut runner = Runner { profile, server, egress, account: self, attempt, lease: Some(lease), held };
        let (record, source) = match (work, earlier) {
            (Work::Answer(challenge, source), earlier) => {
                if challenge.wants_more_scope() {
                    self.step_up(&challenge)?;
                }
                let has_renewed = source == Some(Source::Refresh);
                let earlier =
                    earlier.map(|earlier| if has_renewed { earlier.without_tokens() } else { earlier });
                let mut flow = Flow::new(start(challenge, earlier));
                let first = flow.next(Event::Begin, now(profile));
                let Some(record) = runner.run(&mut flow, first).await? else { return Ok(None) };
                (record, Some(if flow.is_renewed { Source::Refresh } else { Source::SignIn }))
            }
            (_, Some(earlier)) => {
                let (mut flow, claim) = Flow::refresh(start(Challenge::default(), None), earlier.clone());
                let Some(claim) = claim else { return Ok(Some((Some(Arc::new(earlier)), None))) };
                let first: Result<Action, _> = flow.claim(claim, None, now(profile));
                match runner.run(&mut flow, first).await {
                    // The grant has ended: the next request is sent without a token, and the server responds with a
                    // challenge.
                    Err(error) if error.ends_grant() => (earlier.without_tokens(), None),
                    result => match result? {
                        Some(record) => (record, Some(Source::Refresh)),
                        None => return Ok(None),
                    },
                }
            }
            (_, None) => return Ok(Some((None, None))),
        };
        let Runner { lease, held, .. } = runner;
        if held.turn.is_none() {
            held.turn = Some(self.turn.clone().lock_owned().await);
        }
        self.keep(&record, before, lease, profile).await;
        Ok(Some((Some(Arc::new(record)), source)))
    }

    /// Loads the stored token unless a newer one is in memory. An unreadable record is ignored: most servers need no
    /// token.
    async fn load(&self, profile: &Profile) -> Option<Arc<Record>> {
        let Some(kept) = readable(profile.store.load(&self.key).await) else {
            lock(&self.live).reloads += 1; // retry with the next request
            return self.current().0;
        };
        if self.is_ahead_of(kept.as_ref()) {
            return self.current().0;
        }
        readable(Record::read(&kept?)).map(Arc::new)
    }
}

fn readable<T>(kept: Result<T, AuthError>) -> Option<T> {
    kept.inspect_err(|error| tracing::warn!(%error, "ignoring a stored token")).ok()
}
