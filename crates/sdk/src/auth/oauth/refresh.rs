//! Refresh of OAuth tokens, and reauthorization if that fails. Tokens obtained by other processes are reused, and a new
//! token is stored before it is used.

use std::sync::Arc;

use super::account::{Account, AccountLocks, TokenAction, TokenOrigin};
use super::runner::{Runner, now};
use super::{GrantType, OAuthConfig};
use crate::auth::challenge::Challenge;
use crate::auth::error::AuthError;
use crate::auth::flow::{Flow, FlowAction, FlowEvent, FlowInput};
use crate::auth::store::record::TokenRecord;
use crate::egress::{Egress, Target};
use crate::lock::lock;

/// Result of a refresh or authorization: the record, and the origin of a new token; `None` if another caller has
/// completed the operation.
type RefreshOutcome = Option<(Option<Arc<TokenRecord>>, Option<TokenOrigin>)>;

impl Account {
    pub(in crate::auth) async fn refresh_or_authorize(
        &self,
        work: TokenAction,
        profile: &Arc<OAuthConfig>,
        server: &Target,
        egress: &Egress,
        may_ask: bool,
        locks: &mut AccountLocks,
    ) -> Result<RefreshOutcome, AuthError> {
        if matches!(work, TokenAction::Load) {
            return Ok(Some((self.load(profile).await, None)));
        }
        let lease = profile.store.lock(&self.key).await?;
        let stored = profile.store.load(&self.key).await?;
        let (current, attempt) = self.current();
        // An empty store means that a user has signed out, so the token in memory must not be refreshed, unless it
        // could not be stored and is newer than the store.
        let (before, is_newer) = (stored.clone(), self.is_newer_than_store(stored.as_ref()));
        let current = if stored.is_none() && !is_newer {
            current.map(|current| Arc::new(Arc::unwrap_or_clone(current).without_tokens()))
        } else {
            current
        };
        let stored = stored.filter(|_| !is_newer).and_then(|stored| ok_or_warn(TokenRecord::parse(&stored)));
        let is_newer_record = |stored: &TokenRecord| {
            stored.access_token.is_some()
                && current.as_ref().is_none_or(|current| !current.is_same_token(stored))
        };
        if stored.as_ref().is_some_and(|stored| is_newer_record(stored) && !stored.is_stale(now(profile))) {
            return Ok(Some((stored.map(Arc::new), None))); // another process obtained a token
        }
        let earlier = stored.or_else(|| current.map(Arc::unwrap_or_clone));
        let can_redirect = may_ask && matches!(profile.grant, GrantType::AuthorizationCode);
        let start = |challenge, earlier| FlowInput {
            profile: profile.clone(),
            server: server.clone(),
            challenge,
            stored: earlier,
            can_redirect,
        };
        let mut runner =
            Runner { profile, server, egress, account: self, generation: attempt, lease: Some(lease), locks };
        let (record, source) = match (work, earlier) {
            (TokenAction::HandleChallenge(challenge, source), earlier) => {
                if challenge.is_insufficient_scope() {
                    self.count_step_up(&challenge)?;
                }
                let has_renewed = source == Some(TokenOrigin::Refresh);
                let earlier =
                    earlier.map(|earlier| if has_renewed { earlier.without_tokens() } else { earlier });
                let mut flow = Flow::new(start(challenge, earlier));
                let first = flow.next(FlowEvent::Start, now(profile));
                let Some(record) = runner.run(&mut flow, first).await? else { return Ok(None) };
                (record, Some(if flow.is_refreshed { TokenOrigin::Refresh } else { TokenOrigin::SignIn }))
            }
            (_, Some(earlier)) => {
                let (mut flow, claim) = Flow::refresh(start(Challenge::default(), None), earlier.clone());
                let Some(claim) = claim else { return Ok(Some((Some(Arc::new(earlier)), None))) };
                let first: Result<FlowAction, _> = flow.request_token(claim, None, now(profile));
                match runner.run(&mut flow, first).await {
                    // The grant has ended: the next request is sent without a token, and the server responds with a
                    // challenge.
                    Err(error) if error.ends_grant() => (earlier.without_tokens(), None),
                    result => match result? {
                        Some(record) => (record, Some(TokenOrigin::Refresh)),
                        None => return Ok(None),
                    },
                }
            }
            (_, None) => return Ok(Some((None, None))),
        };
        let Runner { lease, locks, .. } = runner;
        if locks.update.is_none() {
            locks.update = Some(self.update_lock.clone().lock_owned().await);
        }
        self.save(&record, before, lease, profile).await;
        Ok(Some((Some(Arc::new(record)), source)))
    }

    /// Loads the stored token unless a newer one is in memory. An unreadable record is ignored: most servers need no
    /// token.
    async fn load(&self, profile: &OAuthConfig) -> Option<Arc<TokenRecord>> {
        let Some(stored) = ok_or_warn(profile.store.load(&self.key).await) else {
            lock(&self.state).reloads += 1; // retry with the next request
            return self.current().0;
        };
        if self.is_newer_than_store(stored.as_ref()) {
            return self.current().0;
        }
        ok_or_warn(TokenRecord::parse(&stored?)).map(Arc::new)
    }
}

fn ok_or_warn<T>(kept: Result<T, AuthError>) -> Option<T> {
    kept.inspect_err(|error| tracing::warn!(%error, "failed to read the stored token; continuing without it"))
        .ok()
}
