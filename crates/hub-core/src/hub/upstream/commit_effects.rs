//! Commits that change a server or a subject: they also close its connections and, for a server, may start a tool sync.
//! The effects happen even if the client disconnects before the commit has finished.

use crate::actor::Subject;
use crate::error::Result;
use crate::hub::upstream::Upstream;
use crate::id::{ServerId, TenantId};
use crate::store::Batch;

impl Upstream {
    /// Commits a change of a server and closes its previous connections. `version` is the new version, or `None` if the
    /// server was removed. With `is_listed`, a sync is scheduled; otherwise the server is not used any more, and a
    /// stdio server is stopped without waiting for its calls.
    pub(in crate::hub) async fn commit_server(
        &self,
        tenant: TenantId,
        batch: Batch,
        (server, version): (ServerId, Option<u64>),
        is_listed: bool,
    ) -> Result<()> {
        let (connections, due) = (self.connections.clone(), self.sync_queue.clone());
        self.context
            .commit_then(tenant, batch, move |done| {
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
    pub(in crate::hub) async fn commit_subject(
        &self,
        tenant: TenantId,
        batch: Batch,
        subject: Subject,
    ) -> Result<()> {
        let connections = self.connections.clone();
        self.context
            .commit_then(tenant, batch, move |done| {
                if done.is_ok() {
                    connections.close_subject(tenant, subject);
                }
            })
            .await
    }
}
