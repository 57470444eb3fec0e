//! Work that goes on when whoever asked for it has left, and is waited for when the hub ends.

use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::sync::lock;

/// All such work.
#[derive(Default)]
pub(super) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    pub(super) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut set = lock(&self.0);
        while set.try_join_next().is_some() {} // what is done is forgotten
        set.spawn(work);
    }

    /// Waits until everything is done, for so long at most; the rest is given up.
    pub(super) async fn end(&self, patience: Duration) {
        let mut set = std::mem::take(&mut *lock(&self.0));
        let all = async { while set.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            set.shutdown().await;
        }
    }
}
