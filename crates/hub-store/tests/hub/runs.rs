//! What a hub does by itself, as often as a test wants.

use std::sync::Arc;

use linchpin_hub_core::hub::Hub;
use tokio::sync::Notify;

use crate::aside::Aside;
use crate::gated::{Asked, Gated, heard};

/// A hub that runs.
pub(crate) struct Runs {
    end: Arc<Notify>,
    running: Aside<()>,
}

impl Runs {
    /// Runs a hub.
    pub(crate) fn new(hub: &Arc<Hub>) -> Self {
        let end = Arc::<Notify>::default();
        let (hub, ends) = (hub.clone(), end.clone());
        Runs { running: Aside::new(hub.run(async move { ends.notified().await })), end }
    }

    /// Runs a hub on a store until everything was done once.
    pub(crate) async fn once(hub: &Arc<Hub>, store: &Gated) -> Self {
        let turn = store.tell(|asked| matches!(asked, Asked::Abandoned));
        let runs = Self::new(hub);
        heard(&turn).await;
        runs
    }

    /// Ends it, when what it has begun is done.
    pub(crate) async fn end(self) {
        self.end.notify_one();
        self.running.done().await;
    }
}
