//! Background loop of a hub, under control of a test.

use std::sync::Arc;

use linchpin_hub_core::hub::Hub;
use tokio::sync::Notify;

use crate::background_task::Aside;
use crate::faulty_store::{Asked, Gated, heard};

/// Hub with a running background loop.
pub(crate) struct Runs {
    end: Arc<Notify>,
    running: Aside<()>,
}

impl Runs {
    /// Starts the background loop of a hub.
    pub(crate) fn new(hub: &Arc<Hub>) -> Self {
        let end = Arc::<Notify>::default();
        let (hub, ends) = (hub.clone(), end.clone());
        Runs { running: Aside::new(hub.run(async move { ends.notified().await })), end }
    }

    /// Starts the background loop, and waits for its first tick.
    pub(crate) async fn once(hub: &Arc<Hub>, store: &Gated) -> Self {
        let turn = store.tell(|asked| matches!(asked, Asked::Abandoned));
        let runs = Self::new(hub);
        heard(&turn).await;
        runs
    }

    /// Stops the loop, and waits for its running work.
    pub(crate) async fn end(self) {
        self.end.notify_one();
        self.running.done().await;
    }
}
