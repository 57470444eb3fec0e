//! Implementation of [`Authorize`] by [`OAuth`]: refreshes tokens before they expire and handles challenges.

use std::sync::Arc;

use http::header::HeaderMap;

use super::OAuth;
use super::account::{Account, TokenAction};
use super::revocation::revoke;
use super::runner::now;
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::flow::dpop;
use crate::auth::form_urlencoded::encode_value;
use crate::auth::scheme::{AuthRejection, Authorize, Credentials, Request};
use crate::auth::store::record::TokenRecord;
use crate::auth::{AuthFuture, boxed};
use crate::egress::{Egress, Target};
use crate::jose::digest;
use crate::lock::lock;

impl OAuth {
    pub(in crate::auth) fn account_for(&self, server: &Target) -> Arc<Account> {
        let key = self.store_key(server);
        let mut accounts = lock(&self.accounts);
        accounts.entry(key.clone()).or_insert_with(|| Arc::new(Account::new(key))).clone()
    }

    fn store_key(&self, server: &Target) -> String {
        let profile = &self.config;
        let client = profile.client.as_ref().map_or("", |client| &client.id);
        // The query may contain keys, so it is hashed; it may also distinguish tenants.
        let url = server.url();
        let query = url.split_once('?').map(|(_, query)| digest(query));
        let [account, client] = [&profile.account, client].map(encode_value);
        [server.to_string(), account, client, query.unwrap_or_default()].join(" ").trim_end().to_owned()
    }

    async fn credentials_for(&self, request: Request<'_>) -> Result<Credentials, AuthError> {
        let (account, profile) = (self.account_for(request.server), &self.config);
        let (generation, is_loaded) = (account.current().1, lock(&account.state).is_loaded);
        if !is_loaded {
            account.run_action(TokenAction::Load, generation, profile, request, false).await?;
        }
        let (record, generation) = account.current();
        if let Some(record) = record.filter(|record| record.can_refresh(now(profile))) {
            // A refresh runs early, so the token may still be valid. If it is not, the server responds with 401, and
            // discovery runs again: the authorization server may have changed.
            if let Err(error) =
                account.run_action(TokenAction::Refresh, generation, profile, request, false).await
            {
                tracing::debug!(%error, is_over = record.is_expired(now(profile)), "token refresh failed");
            }
        }
        account.credentials(request, profile)
    }

    async fn handle_rejection(
        &self,
        request: Request<'_>,
        refusal: AuthRejection,
    ) -> Result<bool, AuthError> {
        let (account, profile) = (self.account_for(request.server), &self.config);
        let AuthRejection { status, challenge, generation, .. } = refusal;
        match status {
            401 if challenge.error.as_deref() == Some("use_dpop_nonce") => return Ok(true),
            401 => account.check_not_just_issued(generation, now(profile), &challenge)?,
            403 if challenge.is_insufficient_scope() => {}
            _ => return Ok(false),
        }
        let may_ask = profile.redirect_handler.is_some() && !request.is_background;
        let source = lock(&account.state).unverified_origin;
        account
            .run_action(
                TokenAction::HandleChallenge(challenge, source),
                generation,
                profile,
                request,
                may_ask,
            )
            .await?;
        Ok(true)
    }

    /// Signs out of a server: deletes the stored token and revokes it if the authorization server supports that (RFC
    /// 7009). Returns whether there was one.
    pub async fn sign_out(&self, url: &str, egress: &Egress) -> Result<bool, AuthError> {
        let server = Target::configured(url)
            .map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))?;
        let account = self.account_for(&server);
        let _turn = account.update_lock.lock().await;
        let _lease = self.config.store.lock(&account.key).await?;
        let stored = self.config.store.load(&account.key).await;
        let stored_record = stored.as_ref().ok().and_then(Option::as_ref);
        let unsaved = account.current().0.filter(|_| account.is_newer_than_store(stored_record));
        self.config.store.remove(&account.key).await?;
        account.set_result(None, None, Ok(()));
        lock(&account.state).unsaved = None;
        if let Some(record) = unsaved {
            return revoke(&record, &self.config, &server, egress).await.map(|()| true);
        }
        match stored?.as_ref().map(TokenRecord::parse) {
            Some(Ok(record)) => revoke(&record, &self.config, &server, egress).await.map(|()| true),
            stored => Ok(stored.is_some()),
        }
    }
}

impl Authorize for OAuth {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        boxed(self.credentials_for(request))
    }

    fn on_rejected<'a>(&'a self, request: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        boxed(self.handle_rejection(request, refusal))
    }

    fn on_response(&self, request: Request<'_>, generation: u64, status: u16, headers: &HeaderMap) {
        let nonce = headers.get(dpop::NONCE_HEADER).and_then(|nonce| nonce.to_str().ok());
        self.account_for(request.server).on_response(generation, status, nonce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_apart() {
        let key = |account: &str, client: &str, url: &str| {
            let oauth = OAuth::new("A test").account(account).client(client);
            oauth.store_key(&Target::configured(url).unwrap())
        };
        let all = [
            key("", "", "https://a.example/mcp"),
            key("a", "b", "https://a.example/mcp"),
            key("a b", "", "https://a.example/mcp"),
            key("", "a b", "https://a.example/mcp"),
            key("a ", "b", "https://a.example/mcp"),
            key("a", "b", "https://a.example/mcp?tenant=1"),
            key("a", "b", "https://a.example/mcp?tenant=2"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{one}");
        }
    }
}
