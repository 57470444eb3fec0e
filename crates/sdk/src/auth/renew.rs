//! Getting another token: what other processes got counts, and what is got is kept before it is used.

use std::sync::Arc;

use super::account::{Account, Source, Work};
use super::challenge::Challenge;
use super::error::AuthError;
use super::flow::{Event, Flow, Start};
use super::oauth::{Grant, Profile};
use super::record::Record;
use super::run::{now, run};
use crate::egress::{Egress, Target};

impl Account {
    /// What is known afterwards, and where a new token came from.
    pub(super) async fn renew(
        &self,
        work: Work,
        profile: &Arc<Profile>,
        server: &Target,
        egress: &Egress,
        may_ask: bool,
    ) -> Result<(Option<Arc<Record>>, Option<Source>), AuthError> {
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
            return Ok((kept.map(Arc::new), None)); // another process got a token meanwhile
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
        let (record, source) = match (work, earlier) {
            (Work::Renew, Some(earlier)) => {
                let (mut flow, claim) = Flow::refresh(start(Challenge::default(), None), earlier.clone());
                let Some(claim) = claim else { return Ok((Some(Arc::new(earlier)), None)) };
                let first = flow.claim(claim, None, now(profile));
                match run(&mut flow, first, profile, server, egress).await {
                    // It is over: the server is asked without a token, and says what it wants.
                    Err(error) if error.code().is_some() => (earlier.without_tokens(), None),
                    result => (result?, Some(Source::Refresh)),
                }
            }
            (Work::Answer(challenge, source), earlier) => {
                let has_renewed = source == Some(Source::Refresh);
                let earlier =
                    earlier.map(|earlier| if has_renewed { earlier.without_tokens() } else { earlier });
                let mut flow = Flow::new(start(challenge, earlier));
                let first = flow.next(Event::Begin, now(profile));
                let record = run(&mut flow, first, profile, server, egress).await?;
                (record, Some(if flow.is_renewed { Source::Refresh } else { Source::SignIn }))
            }
            (Work::Load | Work::Renew, earlier) => return Ok((earlier.map(Arc::new), None)),
        };
        store.save(&self.key, record.write()?).await?;
        Ok((Some(Arc::new(record)), source))
    }
}
