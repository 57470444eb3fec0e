//! OAuth as what says who asks: tokens are renewed before they run out, and what a server refuses is answered.

use std::sync::Arc;

use http::header::HeaderMap;

use super::account::{Account, Work};
use super::dpop;
use super::error::{AuthError, AuthErrorKind};
use super::oauth::OAuth;
use super::record::Record;
use super::revocation::revoke;
use super::run::now;
use super::scheme::{Authorize, Credentials, Refusal, Request};
use super::{AuthFuture, boxed};
use crate::egress::{Egress, Target};
use crate::jose::digest;
use crate::sync::lock;

impl OAuth {
    fn account_of(&self, server: &Target) -> Arc<Account> {
        let key = self.key_of(server);
        let mut accounts = lock(&self.accounts);
        accounts.entry(key.clone()).or_insert_with(|| Arc::new(Account::new(key))).clone()
    }

    fn key_of(&self, server: &Target) -> String {
        let profile = &self.profile;
        let client = profile.client.as_ref().map_or("", |client| &client.id);
        // Queries may hold keys, and tell tenants apart.
        let url = server.url();
        let query = url.split_once('?').map(|(_, query)| digest(query));
        let parts =
            [server.to_string(), profile.account.clone(), client.to_owned(), query.unwrap_or_default()];
        parts.join(" ").trim_end().to_owned()
    }

    async fn credentials_for(&self, request: Request<'_>) -> Result<Credentials, AuthError> {
        let (account, profile) = (self.account_of(request.server), &self.profile);
        if account.current().1 == 0 {
            account.work(Work::Load, 0, profile, request, false).await?;
        }
        let (record, mark) = account.current();
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
            401 => account.check_proven(mark, now(profile), &challenge)?,
            403 if challenge.wants_more_scope() => {}
            _ => return Ok(false),
        }
        let may_ask = profile.person.is_some() && !request.is_background;
        let source = lock(&account.live).unproven;
        account.work(Work::Answer(challenge, source), mark, profile, request, may_ask).await?;
        Ok(true)
    }

    /// Forgets the sign-in to a server, and gives its tokens back if the authorization server takes them (RFC 7009).
    /// Whether there was one.
    pub async fn sign_out(&self, url: &str, egress: &Egress) -> Result<bool, AuthError> {
        let server =
            Target::typed(url).map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))?;
        let account = self.account_of(&server);
        let _turn = account.turn.lock().await;
        let _lease = self.profile.store.lock(&account.key).await?;
        let kept = self.profile.store.load(&account.key).await;
        self.profile.store.remove(&account.key).await?;
        account.settle(None, None, Ok(()));
        match kept?.as_ref().map(Record::read) {
            Some(Ok(record)) => revoke(&record, &self.profile, &server, egress).await.map(|()| true),
            kept => Ok(kept.is_some()),
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

    fn answered(&self, request: Request<'_>, mark: u64, status: u16, headers: &HeaderMap) {
        let account = self.account_of(request.server);
        let mut live = lock(&account.live);
        if let Some(nonce) = headers.get(dpop::NONCE).and_then(|nonce| nonce.to_str().ok()) {
            live.nonce = Some(nonce.to_owned());
        }
        if status != 401 && mark == live.attempt {
            live.unproven = None;
        }
    }
}
