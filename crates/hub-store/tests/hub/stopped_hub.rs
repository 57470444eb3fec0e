//! A hub on a data directory that tests change while the hub does not run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin_hub_core::audit::Damage;
use linchpin_hub_core::hub::{AuditVerification, Hub};
use linchpin_hub_core::store::Store;
use linchpin_hub_store::Sqlite;
use rusqlite::Connection;
use serde_json::json;

use crate::clock::Clock;
use crate::fixture::{ADA, local_user, with_heads};

/// Counter for unique agent names.
static AGENT_COUNTER: AtomicUsize = AtomicUsize::new(0);

/// A stopped hub with audit entries and a signed head.
pub(crate) struct StoppedHub {
    pub(crate) place: tempfile::TempDir,
    clock: Arc<Clock>,
}

impl StoppedHub {
    pub(crate) async fn new() -> Self {
        let ended = StoppedHub { place: tempfile::tempdir().unwrap(), clock: Arc::new(Clock::default()) };
        ended.run(5).await;
        ended
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(Sqlite::open(&self.path().join("hub.db")).unwrap())
    }

    pub(crate) fn hub(&self) -> Arc<Hub> {
        with_heads(&self.place, self.clock.clone(), self.store())
    }

    /// Starts a hub, adds entries to the audit, and ends it.
    pub(crate) async fn run(&self, entries: usize) {
        let hub = self.hub();
        hub.unlock().await.unwrap();
        hub.identity().ensure_local_user().await.unwrap();
        hub.audit().sign().await.unwrap();
        for _ in 0..entries {
            let name = format!("Agent {}", AGENT_COUNTER.fetch_add(1, Ordering::Relaxed));
            hub.identity().add_agent(local_user(ADA), json!({ "name": name })).await.unwrap();
        }
        hub.shutdown().await;
    }

    /// Starts a hub, which stores nothing because the audit has entries of another program, and ends it.
    pub(crate) async fn run_in_vain(&self) {
        let hub = self.hub();
        hub.unlock().await.unwrap();
        hub.audit().sign().await.unwrap();
        let error = hub.identity().add_user(local_user(ADA), "eve").await.unwrap_err();
        assert_eq!(error.code(), "audit_tampered", "{error}");
        hub.shutdown().await;
    }

    pub(crate) async fn verified(&self) -> AuditVerification {
        self.hub().audit().verify(local_user(ADA)).await.unwrap()
    }

    /// Verifies the audit and returns the kind of damage.
    pub(crate) async fn damage(&self) -> Option<Damage> {
        let found = self.verified().await;
        assert_eq!(found.intact, found.kind.is_none(), "{found:?}");
        assert_eq!(found.kind.is_some(), found.error.is_some(), "{found:?}");
        found.kind
    }

    pub(crate) fn sql(&self, sql: &str) {
        Connection::open(self.path().join("hub.db")).unwrap().execute_batch(sql).unwrap();
    }
}
