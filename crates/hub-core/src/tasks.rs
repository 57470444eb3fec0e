//! Work that goes on when whoever asked for it has left, and is waited for when the hub ends.

use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::sync::lock;

/// All such work; nothing once the hub has ended.
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Tasks(Mutex::new(Some(JoinSet::new())))
    }
}

impl Tasks {
    /// Starts something. Whoever waits for it sees it dropped if it is too late for that.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(set) = &mut *lock(&self.0) {
            while set.try_join_next().is_some() {} // what is done is forgotten
            set.spawn(work);
        }
    }

    /// Waits until everything is done, also what is begun meanwhile, for so long at most. The rest is given up, and
    /// nothing is begun any more.
    pub(crate) async fn end(&self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            let set = lock(&self.0).replace(JoinSet::new());
            let Some(mut set) = set.filter(|set| !set.is_empty()) else { break };
            let all = async { while set.join_next().await.is_some() {} };
            if timeout_at(until, all).await.is_err() {
                set.shutdown().await;
                break;
            }
        }
        let last = lock(&self.0).take();
        if let Some(mut set) = last {
            set.shutdown().await;
        }
    }
}
