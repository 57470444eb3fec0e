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
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
        before: Option<Secret>,
        lease: Option<Box<dyn Send>>,
        profile: &Profile,
    ) {
        let keep = async {
            let _lease = match lease {
                Some(lease) => lease,
                None => profile.store.lock(&self.key).await?,
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

    /// Keeps what could not be kept. What another process kept since counts more.
    async fn keep_again(&self, profile: &Profile) -> Result<(), AuthError> {
        let _lease = profile.store.lock(&self.key).await?;
        let kept = profile.store.load(&self.key).await?;
        let is_ahead = self.is_ahead_of(kept.as_ref());
        if let Some(record) = self.current().0.filter(|_| is_ahead) {
            profile.store.save(&self.key, record.write()?).await?;
        }
        let mut live = lock(&self.live);
        live.unkept = None;
        live.is_loaded &= is_ahead;
        Ok(())
    }
}

/// Lets others go on, and tries until what could not be kept is. Whatever is done next takes that over, and nobody goes on for
/// an account that is used no more.
pub(super) async fn keep_on(account: Arc<Account>, held: Held, profile: Arc<Profile>) {
    let (attempt, account) = (account.current().1, Arc::downgrade(&account));
    drop(held);
    let mut pause = FIRST_PAUSE;
    loop {
        {
            let Some(account) = account.upgrade() else { return };
            let live = lock(&account.live);
            if live.unkept.is_none() || live.attempt != attempt {
                return;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let Some(account) = account.upgrade() else { return };
        let _turn = account.turn.lock().await;
        if account.current().1 == attempt
            && let Err(error) = account.keep_again(&profile).await
        {
            tracing::debug!(%error, "a sign-in can still not be kept");
        }
    }
}
