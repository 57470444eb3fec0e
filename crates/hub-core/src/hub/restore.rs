//! Completion of a restore from a backup: audit entry, interrupted calls and signed heads.

use super::{Hub, LOCAL};
use crate::audit::AuditEntry;
use crate::backup::BackupSummary;
use crate::error::Result;
use crate::store::Batch;

impl Hub {
    /// Records the restore in the audit and closes the calls that were running when the backup was made with the
    /// outcome `unknown`. Returns their number.
    pub async fn finish_restore(&self, contents: &BackupSummary) -> Result<usize> {
        // A backup of an earlier version has no codes, whatever the signed head of the replaced database requires.
        self.audit.set_initial_codes().await?;
        self.unlock().await?;
        let entry = AuditEntry::new(self.context.platform.now(), "hub", "store.restored")
            .with("backup_created", contents.at.to_string());
        let entry = entry.with("records", contents.records).with("digest", contents.digest.to_string());
        self.context.store.commit(LOCAL, Batch::new().audit(entry)).await?;
        let unknown = self.calls.recover().await?;
        // The restored history is deliberately older than the signed head.
        for tenant in self.context.store.tenants().await? {
            if let Err(error) = self.audit.replace_head(tenant).await {
                tracing::warn!(tenant.id = %tenant, %error, "failed to sign the head of the restored audit");
            }
        }
        self.shutdown().await;
        Ok(unknown)
    }
}
