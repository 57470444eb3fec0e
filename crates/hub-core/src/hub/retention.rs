//! Retention: calls are deleted after their retention time, and old audit entries are archived from the store into
//! signed segments.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::{Hub, document, put};
use crate::audit::segment::{Sealing, Segment, begun};
use crate::audit::{Entry, Head};
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::lock::lock;
use crate::platform::System;
use crate::private_file;
use crate::store::{Batch, Change, Key, Kind, MOST_ON_PAGE};

/// Approximate maximum size of a segment in bytes. More entries make more segments.
const MOST: usize = 8 << 20;
const DAY: i64 = 24 * 60 * 60;
/// Calls deleted by one commit.
const MAX_DELETED: u32 = 100;

/// Retention times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Retention of calls with their arguments and results.
    pub history: Duration,
    /// Retention of audit entries in the store. Default: unlimited.
    pub audit: Option<Duration>,
}

impl Hub {
    /// Sets the retention times and applies them at once.
    pub async fn retain(&self, retention: Retention) -> Result<()> {
        if std::mem::replace(&mut *lock(&self.retention), retention) == retention {
            return Ok(());
        }
        tracing::info!(?retention, "retention changed");
        for tenant in self.store.tenants().await? {
            self.forget_old(tenant).await?;
            self.seal_old(tenant).await?;
        }
        Ok(())
    }

    /// Deletes calls that are older than the retention of the history, a limited number per commit, so that other
    /// commits can run in between.
    pub async fn forget_old(&self, tenant: TenantId) -> Result<()> {
        let history = lock(&self.retention).history;
        let before = self.world.now().saturating_sub(history).unwrap_or(Timestamp::MIN);
        loop {
            let forget = Change::Forget { before, most: MAX_DELETED };
            self.store.commit(tenant, Batch::new().change(forget)).await?;
            if !self.store.has_calls_before(tenant, before).await? {
                return Ok(());
            }
        }
    }

    /// Archives audit entries that are older than their retention in segment files, up to a day boundary.
    pub async fn seal_old(&self, tenant: TenantId) -> Result<()> {
        let (kept, folder) = (lock(&self.retention).audit, self.options.segments.clone());
        let (Some(kept), Some(folder)) = (kept, folder) else { return Ok(()) };
        let before = self.world.now().saturating_sub(kept).unwrap_or(Timestamp::MIN).as_second();
        let before = Timestamp::from_second(before - before.rem_euclid(DAY)).unwrap_or(Timestamp::MIN);
        let known = self.all::<Segment>(tenant, Kind::Segment, None).await?;
        // Entries added from here on are not old.
        let (mut number, end) = (known.len() as u64, self.store.head(tenant).await?.number);
        let mut head = known.last().map_or_else(|| Head::start(tenant), |(last, _)| last.ends());
        while let Some(entries) = self.old(tenant, head, (before, end), &folder).await? {
            number += 1;
            let unwritten = |error| unsealed(&folder, &error);
            let (segment, text) =
                entries.seal(&self.signer, tenant, number).map_err(|error| unwritten(error.into()))?;
            head = segment.ends();
            self.put_away(&folder, segment, text).await?;
        }
        Ok(())
    }

    /// Collects the entries of the next segment: those of a segment file that was written but not committed, or all old
    /// ones. The last entry of the chain stays in the store.
    async fn old(
        &self,
        tenant: TenantId,
        head: Head,
        (before, end): (Timestamp, u64),
        folder: &Path,
    ) -> Result<Option<Sealing>> {
        let (mut entries, begun) = (Sealing::new(head), begun(folder, tenant, head.number + 1));
        'pages: loop {
            let rows = self.store.audit(tenant, entries.next() - 1, MOST_ON_PAGE).await?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let is_over = begun.is_some_and(|begun| row.number > begun) || entries.text.len() >= MOST;
                if is_over || row.at >= before || row.number >= end {
                    break 'pages;
                }
                entries.add(row).map_err(|broken| {
                    let text = format!("old audit entries cannot be archived: {broken}");
                    Error::new(error::Kind::Internal, "audit_broken", text)
                })?;
            }
        }
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// Writes the segment file, then removes the entries from the store.
    async fn put_away(&self, folder: &Path, segment: Segment, text: Vec<u8>) -> Result<()> {
        let (tenant, path) = (segment.tenant, folder.join(segment.file()));
        let file = path.clone();
        let written = spawn_blocking(move || private_file::write(&file, &text, &System)).await;
        let written = written.map_err(std::io::Error::other).and_then(|written| written);
        written.map_err(|error| unsealed(folder, &error))?;
        let id = format!("{:020}", segment.first);
        let entry = Entry::new(self.world.now(), "hub", "audit.seal").with("segment", segment.segment);
        let entry = entry.with("first", segment.first).with("last", segment.last);
        let batch = Batch::new()
            .change(put(document(Kind::Segment, &id, &segment)?, 0))
            .change(Change::Seal { first: segment.first, last: segment.ends() })
            .audit(entry);
        let kept = self.store.commit(tenant, batch).await;
        if kept.as_ref().is_err_and(|error| error.kind() == error::Kind::Conflict) {
            // Another hub was faster. The file belongs to its segment only if both are identical.
            let other = self.store.document(tenant, &Key::new(Kind::Segment, id)).await?;
            let other = other.map(|other| other.document.read::<Segment>()).transpose()?;
            if other.is_some_and(|other| other.file() != segment.file()) {
                let _ = spawn_blocking(move || std::fs::remove_file(path)).await; // harmless if left behind
            }
        }
        kept
    }
}

fn unsealed(folder: &Path, error: &std::io::Error) -> Error {
    let text = format!("failed to write old audit entries to `{}`: {error}", folder.display());
    Error::new(error::Kind::Unavailable, "segment_unwritable", text)
}
