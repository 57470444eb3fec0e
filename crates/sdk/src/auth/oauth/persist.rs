//! Storing of new OAuth tokens. A token that cannot be stored is used anyway, because its predecessor may be invalid;
//! storing is retried in the background.

use std::sync::Arc;
use std::time::Duration;

use super::OAuthConfig;
use super::account::{Account, AccountLocks};
use crate::auth::error::AuthError;
use crate::auth::secret::Secret;
use crate::auth::store::record::TokenRecord;
use crate::lock::lock;

const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Maximum number of attempts to store a token for an account that is not in use any more.
const MAX_IDLE_ATTEMPTS: u32 = 30;

/// Note that the token in memory could not be stored, with the content of the store at that time.
pub(in crate::auth) struct UnsavedToken {
    /// Content of the token store when saving the token failed.
    stored: Option<Secret>,
}

impl Account {
    /// Stores a new token record, under the given lock of the store or a new one. `before` is the current content of
    /// the store.
    pub(in crate::auth) async fn save(
        &self,
        record: &TokenRecord,
        mut before: Option<Secret>,
        lease: Option<Box<dyn Send>>,
        profile: &OAuthConfig,
    ) {
        let save = async {
            let _lease = if let Some(lease) = lease {
                lease
            } else {
                // The lease was released during the sign-in.
                let lease = profile.store.lock(&self.key).await?;
                before = profile.store.load(&self.key).await?;
                lease
            };
            profile.store.save(&self.key, record.serialize()?).await
        };
        let saved = save.await;
        lock(&self.state).unsaved = saved.is_err().then_some(UnsavedToken { stored: before });
        if let Err(error) = saved {
            tracing::error!(%error, "failed to store a new token; it is lost with this process unless a retry succeeds");
        }
    }

    /// Returns whether the token in memory is newer than the given content of the store.
    pub(in crate::auth) fn is_newer_than_store(&self, stored: Option<&Secret>) -> bool {
        lock(&self.state).unsaved.as_ref().is_some_and(|unsaved| unsaved.stored.as_ref() == stored)
    }

    /// Makes one attempt to store the token of generation `attempt`, unless a token operation is running. A token
    /// stored by another process wins.
    async fn retry_save_once(&self, attempt: u64, profile: &OAuthConfig) -> Result<(), AuthError> {
        let _lease = profile.store.lock(&self.key).await?;
        let Ok(_turn) = self.update_lock.try_lock() else { return Ok(()) };
        let stored = profile.store.load(&self.key).await?;
        let (record, is_newer) = (self.current(), self.is_newer_than_store(stored.as_ref()));
        let (Some(record), true) = (record.0, record.1 == attempt) else { return Ok(()) };
        if is_newer {
            profile.store.save(&self.key, record.serialize()?).await?;
        }
        let mut live = lock(&self.state);
        live.unsaved = None;
        live.is_loaded &= is_newer;
        Ok(())
    }

    fn is_unsaved(&self, attempt: u64) -> bool {
        let live = lock(&self.state);
        live.unsaved.is_some() && live.generation == attempt
    }
}

/// Releases the token locks and retries to store the new token until it succeeds. The next operation on the token takes
/// precedence.
pub(in crate::auth) async fn retry_save(
    account: Arc<Account>,
    locks: AccountLocks,
    profile: Arc<OAuthConfig>,
) {
    let attempt = account.current().1;
    drop(locks);
    let (mut delay, mut attempts) = (INITIAL_BACKOFF, MAX_IDLE_ATTEMPTS);
    while attempts > 0 && account.is_unsaved(attempt) {
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_BACKOFF);
        attempts = if Arc::strong_count(&account) == 1 { attempts - 1 } else { MAX_IDLE_ATTEMPTS };
        if let Err(error) = account.retry_save_once(attempt, &profile).await {
            tracing::debug!(%error, "retry to store the token failed");
        }
    }
}
