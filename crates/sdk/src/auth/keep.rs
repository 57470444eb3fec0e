//! Keeping a token. One that cannot be kept is used all the same, since the one before it may be worth nothing any more; it
//! is kept as soon as that can be.

use std::sync::Arc;
use std::time::Duration;

use super::account::{Account, Held};
use super::error::AuthError;
use super::oauth::Profile;
use super::record::Record;
use super::secret::Secret;
use crate::sync::lock;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often it is tried for an account that nobody uses any more.
const LAST_TRIES: u32 = 30;

/// What is known could not be kept.
pub(super) struct Unkept {
    /// What the store had then.
    before: Option<Secret>,
}

impl Account {
    /// Keeps a new token, under the lease of whoever has one. `before` is what the store has.
    pub(super) async fn keep(
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
                // It was given back while somebody was asked.
                let lease = profile.store.lock(&self.key).await?;
                before = profile.store.load(&self.key).await?;
                lease
            };
            profile.store.save(&self.key, record.write()?).await
        };
        let kept = keep.await;
        lock(&self.live).unkept = kept.is_err().then_some(Unkept { before });
        if let Err(error) = kept {
            tracing::error!(%error, "a new sign-in could not be kept: until it is, it would be lost with this process");
        }
    }

    /// Whether what is known here is newer than `kept`, which the store has.
    pub(super) fn is_ahead_of(&self, kept: Option<&Secret>) -> bool {
        lock(&self.live).unkept.as_ref().is_some_and(|unkept| unkept.before.as_ref() == kept)
    }

    /// Keeps what could not be kept after `attempt`, unless somebody is at it. What another process kept since counts more.
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

/// Lets others go on, and tries until what could not be kept is. Whatever is done next takes that over.
pub(super) async fn keep_on(account: Arc<Account>, held: Held, profile: Arc<Profile>) {
    let attempt = account.current().1;
    drop(held);
    let (mut pause, mut tries) = (FIRST_PAUSE, LAST_TRIES);
    while tries > 0 && account.is_unkept(attempt) {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        tries = if Arc::strong_count(&account) == 1 { tries - 1 } else { LAST_TRIES };
        if let Err(error) = account.keep_again(attempt, &profile).await {
            tracing::debug!(%error, "a sign-in can still not be kept");
        }
    }
}
