//! Retention: calls are deleted after their retention time, and old audit entries are archived from the store into
//! signed segments.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use crate::audit::segment::{SegmentBuilder, SegmentFooter, find_partial};
use crate::audit::{AuditEntry, ChainHead};
use crate::error::{self, Error, Result};
use crate::hub::audit::Audit;
use crate::hub::{document, upsert};
use crate::id::TenantId;
use crate::lock::lock;
use crate::platform::SystemPlatform;
use crate::private_file;
use crate::store::{Batch, DocumentKey, DocumentKind, MAX_PAGE_SIZE, StoreChange};

/// Approximate maximum size of a segment in bytes. More entries make more segments.
const MAX_SEGMENT_BYTES: usize = 8 << 20;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Maximum number of old calls deleted by one commit.
const MAX_DELETED: u32 = 100;

/// How long the store of the hub retains calls and audit entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Retention of calls with their arguments and results.
    pub history: Duration,
    /// Retention of audit entries in the store. Default: unlimited.
    pub audit: Option<Duration>,
}

impl Audit {
    /// Sets the retention times of call history and audit, and applies them at once.
    pub async fn set_retention(&self, retention: Retention) -> Result<()> {
        if std::mem::replace(&mut *lock(&self.retention), retention) == retention {
            return Ok(());
        }
        tracing::info!(?retention, "retention changed");
        for tenant in self.context.store.tenants().await? {
            self.prune_calls(tenant).await?;
            self.archive(tenant).await?;
        }
        Ok(())
    }

    /// Deletes calls that are older than the retention of the history, a limited number per commit, so that other
    /// commits can run in between.
    pub async fn prune_calls(&self, tenant: TenantId) -> Result<()> {
        let history = lock(&self.retention).history;
        let before = self.context.platform.now().saturating_sub(history).unwrap_or(Timestamp::MIN);
        loop {
            let prune = StoreChange::PruneCalls { before, max_calls: MAX_DELETED };
            self.context.store.commit(tenant, Batch::new().change(prune)).await?;
            if !self.context.store.has_calls_before(tenant, before).await? {
                return Ok(());
            }
        }
    }

    /// Archives audit entries that are older than their retention in segment files, up to a day boundary.
    pub async fn archive(&self, tenant: TenantId) -> Result<()> {
        let (max_age, folder) = (lock(&self.retention).audit, self.context.options.segments.clone());
        let (Some(max_age), Some(folder)) = (max_age, folder) else { return Ok(()) };
        if self.has_diverged(tenant).await {
            return Ok(()); // a segment would sign the entries
        }
        let before =
            self.context.platform.now().saturating_sub(max_age).unwrap_or(Timestamp::MIN).as_second();
        let before =
            Timestamp::from_second(before - before.rem_euclid(SECONDS_PER_DAY)).unwrap_or(Timestamp::MIN);
        let segments = self.context.load_all::<SegmentFooter>(tenant, DocumentKind::Segment, None).await?;
        // Entries added from here on are not old.
        let (mut number, end) = (segments.len() as u64, self.context.store.audit_head(tenant).await?.number);
        let mut head = segments.last().map_or_else(|| ChainHead::start(tenant), |(last, _)| last.end_head());
        while let Some(entries) = self.next_segment(tenant, head, (before, end), &folder).await? {
            number += 1;
            let write_error = |error| segment_write_error(&folder, &error);
            let (segment, text) =
                entries.seal(&self.signer, tenant, number).map_err(|error| write_error(error.into()))?;
            head = segment.end_head();
            self.write_segment(&folder, segment, text).await?;
        }
        Ok(())
    }

    /// Collects the entries of the next segment: those of a segment file that was written but not committed, or all old
    /// ones. The last entry of the chain stays in the store.
    async fn next_segment(
        &self,
        tenant: TenantId,
        head: ChainHead,
        (before, end): (Timestamp, u64),
        folder: &Path,
    ) -> Result<Option<SegmentBuilder>> {
        let (mut entries, partial_end) =
            (SegmentBuilder::new(head), find_partial(folder, tenant, head.number + 1));
        'pages: loop {
            let rows =
                self.context.store.audit_entries(tenant, entries.next_number() - 1, MAX_PAGE_SIZE).await?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let ends_segment = partial_end.is_some_and(|partial_end| row.number > partial_end)
                    || entries.text.len() >= MAX_SEGMENT_BYTES;
                if ends_segment || row.at >= before || row.number >= end {
                    break 'pages;
                }
                entries.add(row).map_err(|broken| {
                    let text = format!("old audit entries cannot be archived: {broken}");
                    Error::new(error::ErrorKind::Internal, "audit_damaged", text)
                })?;
            }
        }
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// Writes the file of an audit segment, then removes its entries from the store.
    async fn write_segment(&self, folder: &Path, segment: SegmentFooter, text: Vec<u8>) -> Result<()> {
        let (tenant, path) = (segment.tenant, folder.join(segment.file_name()));
        let file = path.clone();
        let write_result = spawn_blocking(move || private_file::write(&file, &text, &SystemPlatform)).await;
        let write_result = write_result.map_err(std::io::Error::other).and_then(|result| result);
        write_result.map_err(|error| segment_write_error(folder, &error))?;
        let id = format!("{:020}", segment.first);
        let entry = AuditEntry::new(self.context.platform.now(), "hub", "audit.segment_sealed")
            .with("segment", segment.segment);
        let entry = entry.with("first", segment.first).with("last", segment.last);
        let batch = Batch::new()
            .change(upsert(document(DocumentKind::Segment, &id, &segment)?, 0))
            .change(StoreChange::RemoveSealedEntries { first: segment.first, last: segment.end_head() })
            .audit(entry);
        let stored = self.context.store.commit(tenant, batch).await;
        if stored.as_ref().is_err_and(|error| error.kind() == error::ErrorKind::Conflict) {
            // Another hub was faster. The file belongs to its segment only if both are identical.
            let other =
                self.context.store.document(tenant, &DocumentKey::new(DocumentKind::Segment, id)).await?;
            let other = other.map(|other| other.document.parse_body::<SegmentFooter>()).transpose()?;
            if other.is_some_and(|other| other.file_name() != segment.file_name()) {
                let _ = spawn_blocking(move || std::fs::remove_file(path)).await; // harmless if left behind
            }
        }
        stored
    }
}

fn segment_write_error(folder: &Path, error: &std::io::Error) -> Error {
    let text = format!(
        "failed to archive old audit entries in the folder `{}`: {error}; they stay in the database",
        folder.display()
    );
    Error::new(error::ErrorKind::Unavailable, "segment_unwritable", text)
}
