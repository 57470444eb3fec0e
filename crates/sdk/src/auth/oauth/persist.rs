//! Persistence of new tokens. A token that cannot be stored is used anyway, because its predecessor may be invalid;
//! storing is retried in the background.

use std::sync::Arc;
use std::time::Duration;

use super::Profile;
use super::account::{Account, Held};
use crate::auth::error::AuthError;
use crate::auth::secret::Secret;
use crate::auth::store::record::Record;
use crate::lock::lock;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of retries for an account that is not in use any more.
const LAST_TRIES: u32 = 30;

/// Marker of a token that could not be stored.
pub(in crate::auth) struct Unkept {
    /// Content of the store at that time.
    before: Option<Secret>,
}

impl Account {
    /// Stores a new token, under the given lease or a new one. `before` is the current content of the store.
    pub(in crate::auth) async fn keep(
        &self,
        record: &Record,
        mut before: Option<Secret>,
        lease: Option<Box<dyn Send>>,
        profile: &Profile,
    ) {
        let keep = async {
            let _lease = if let Some(lease) = lease {
                lease
            } else {
                // The lease was released during the sign-in.
                let lease = profile.store.lock(&self.key).await?;
                before = profile.store.load(&self.key).await?;
                lease
            };
            profile.store.save(&self.key, record.write()?).await
        };
        let kept = keep.await;
        lock(&self.live).unkept = kept.is_err().then_some(Unkept { before });
        if let Err(error) = kept {
            tracing::error!(%error, "failed to store a new token; it is lost with this process unless a retry succeeds");
        }
    }

    /// Returns whether the token in memory is newer than the given content of the store.
    pub(in crate::auth) fn is_ahead_of(&self, kept: Option<&Secret>) -> bool {
        lock(&self.live).unkept.as_ref().is_some_and(|unkept| unkept.before.as_ref() == kept)
    }

    /// Retries to store the token of `attempt`, unless an operation is running. A token stored by another process wins.
    async fn keep_again(&self, attempt: u64, profile: &Profile) -> Result<(), AuthError> {
        let _lease = profile.store.lock(&self.key).await?;
        let Ok(_turn) = self.turn.try_lock() else { return Ok(()) };
        let kept = profile.store.load(&self.key).await?;
        let (record, is_ahead) = (self.current(), self.is_ahead_of(kept.as_ref()));
        let (Some(record), true) = (record.0, record.1 == attempt) else { return Ok(()) };
        if is_ahead {
            profile.store.save(&self.key, record.write()?).await?;
        }
        let mut live = lock(&self.live);
        live.unkept = None;
        live.is_loaded &= is_ahead;
        Ok(())
    }

    fn is_unkept(&self, attempt: u64) -> bool {
        let live = lock(&self.live);
        live.unkept.is_some() && live.attempt == attempt
    }
}

/// Releases the locks and retries until the token is stored. The next operation on the token takes precedence.
pub(in crate::auth) async fn keep_on(account: Arc<Account>, held: Held, profile: Arc<Profile>) {
    let attempt = account.current().1;
    drop(held);
    let (mut pause, mut tries) = (FIRST_PAUSE, LAST_TRIES);
    while tries > 0 && account.is_unkept(attempt) {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        tries = if Arc::strong_count(&account) == 1 { tries - 1 } else { LAST_TRIES };
        if let Err(error) = account.keep_again(attempt, &profile).await {
            tracing::debug!(%error, "retry to store the token failed");
        }
    }
}
