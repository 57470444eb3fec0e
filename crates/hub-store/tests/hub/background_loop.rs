//! Background loop of a hub, under control of a test.

use std::sync::Arc;

use linchpin_hub_core::hub::Hub;
use tokio::sync::Notify;

use crate::background_task::BackgroundTask;
use crate::faulty_store::{FaultyStore, StoreRequest, notified};

/// Hub with a running background loop.
pub(crate) struct RunningHub {
    end: Arc<Notify>,
    running: BackgroundTask<()>,
}

impl RunningHub {
    /// Starts the background loop of a hub.
    pub(crate) fn new(hub: &Arc<Hub>) -> Self {
        let end = Arc::<Notify>::default();
        let (hub, ends) = (hub.clone(), end.clone());
        RunningHub { running: BackgroundTask::new(hub.run(async move { ends.notified().await })), end }
    }

    /// Starts the background loop, and waits for its first tick.
    pub(crate) async fn once(hub: &Arc<Hub>, store: &FaultyStore) -> Self {
        let turn = store.notify(|asked| matches!(asked, StoreRequest::Abandoned));
        let runs = Self::new(hub);
        notified(&turn).await;
        runs
    }

    /// Stops the loop, and waits for its running work.
    pub(crate) async fn end(self) {
        self.end.notify_one();
        self.running.join().await;
    }
}
