//! Commits that change a server or a subject: they also close its connections and, for a server, may start a tool sync.
//! The effects happen even if the client disconnects before the commit has finished.

use super::Hub;
use crate::actor::Subject;
use crate::error::Result;
use crate::id::{ServerId, TenantId};
use crate::store::Batch;

impl Hub {
    /// Runs `work` to its end in a tracked task, even if the caller is dropped.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.tasks.run(work).await
    }

    /// Commits a batch, then calls `after_commit` with the result.
    pub(super) async fn commit_then(
        &self,
        tenant: TenantId,
        batch: Batch,
        after_commit: impl FnOnce(&Result<()>) + Send + 'static,
    ) -> Result<()> {
        let store = self.store.clone();
        self.detached(async move {
            let done = store.commit(tenant, batch).await;
            after_commit(&done);
            done
        })
        .await
    }

    /// Commits a change of a server and closes its previous connections. `version` is the new version, or `None` if the
    /// server was removed. With `is_listed`, a sync is scheduled; otherwise the server is not used any more, and a
    /// stdio server is stopped without waiting for its calls.
    pub(super) async fn commit_server(
        &self,
        tenant: TenantId,
        batch: Batch,
        (server, version): (ServerId, Option<u64>),
        is_listed: bool,
    ) -> Result<()> {
        let (connections, due) = (self.connections.clone(), self.sync_queue.clone());
        self.commit_then(tenant, batch, move |done| {
            if done.is_ok() {
                connections.invalidate(tenant, server, version, !is_listed);
                if is_listed {
                    due.add((tenant, server));
                }
            }
        })
        .await
    }

    /// Commits a change of a subject and closes its connections.
    pub(super) async fn commit_subject(
        &self,
        tenant: TenantId,
        batch: Batch,
        subject: Subject,
    ) -> Result<()> {
        let connections = self.connections.clone();
        self.commit_then(tenant, batch, move |done| {
            if done.is_ok() {
                connections.close_subject(tenant, subject);
            }
        })
        .await
    }
}
