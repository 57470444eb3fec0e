//! Commits with consequences: connections that must close, tools that must be listed again. They happen even if the
//! client that wanted the change disconnects meanwhile.

use super::Hub;
use crate::error::Result;
use crate::id::{ServerId, TenantId};
use crate::scope::Subject;
use crate::store::Batch;

impl Hub {
    /// Runs `work` to its end in a tracked task, even if the caller stops waiting for it.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.tasks.run(work).await
    }

    /// Commits a batch, then calls `then` with the result.
    pub(super) async fn commit_then(
        &self,
        tenant: TenantId,
        batch: Batch,
        then: impl FnOnce(&Result<()>) + Send + 'static,
    ) -> Result<()> {
        let store = self.store.clone();
        self.detached(async move {
            let done = store.commit(tenant, batch).await;
            then(&done);
            done
        })
        .await
    }

    /// Commits a change of a server, and closes its connections of before. `version` is its new version, or none if it was
    /// removed. If it is to be listed, its tools are listed soon; otherwise it is not used any more, and a stdio server does
    /// not wait for its calls.
    pub(super) async fn commit_server(
        &self,
        tenant: TenantId,
        batch: Batch,
        (server, version): (ServerId, Option<u64>),
        is_listed: bool,
    ) -> Result<()> {
        let (connections, due) = (self.connections.clone(), self.due.clone());
        self.commit_then(tenant, batch, move |done| {
            if done.is_ok() {
                connections.outdated(tenant, server, version, !is_listed);
                if is_listed {
                    due.add((tenant, server));
                }
            }
        })
        .await
    }

    /// Commits a change of a subject, and closes its connections.
    pub(super) async fn commit_subject(
        &self,
        tenant: TenantId,
        batch: Batch,
        subject: Subject,
    ) -> Result<()> {
        let connections = self.connections.clone();
        self.commit_then(tenant, batch, move |done| {
            if done.is_ok() {
                connections.end_of(tenant, subject);
            }
        })
        .await
    }
}
