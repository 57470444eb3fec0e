//! What is kept for how long: calls are forgotten when their time is over, and entries of the audit leave the store as sealed
//! segments.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::{Hub, document, put};
use crate::audit::{Entry, Head};
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::private;
use crate::segment::{Sealing, Segment, begun};
use crate::store::{Batch, Change, Key, Kind, MOST_ON_PAGE};
use crate::sync::lock;
use crate::world::System;

/// About how many bytes a segment has at most. More entries make more segments.
const MOST: usize = 8 << 20;
const DAY: i64 = 24 * 60 * 60;
/// Calls that one commit deletes.
const MAX_DELETED: u32 = 100;

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Arguments and results of calls.
    pub history: Duration,
    /// Entries of the audit, in the store; for ever, if nothing is said.
    pub audit: Option<Duration>,
}

impl Hub {
    /// Keeps everything for so long from now on. What has been kept for longer goes at once.
    pub async fn retain(&self, retention: Retention) -> Result<()> {
        if std::mem::replace(&mut *lock(&self.retention), retention) == retention {
            return Ok(());
        }
        tracing::info!(?retention, "what is kept for how long has changed");
        for tenant in self.store.tenants().await? {
            self.forget_old(tenant).await?;
            self.seal_old(tenant).await?;
        }
        Ok(())
    }

    /// Deletes calls that are older than the retention of the history. Each commit deletes some of them, so that other
    /// commits have their turn in between however many there are.
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

    /// Puts entries of the audit that are older than they are kept into files, day by day.
    pub async fn seal_old(&self, tenant: TenantId) -> Result<()> {
        let (kept, folder) = (lock(&self.retention).audit, self.options.segments.clone());
        let (Some(kept), Some(folder)) = (kept, folder) else { return Ok(()) };
        let before = self.world.now().saturating_sub(kept).unwrap_or(Timestamp::MIN).as_second();
        let before = Timestamp::from_second(before - before.rem_euclid(DAY)).unwrap_or(Timestamp::MIN);
        let known = self.all::<Segment>(tenant, Kind::Segment, None).await?;
        // What is added from now on is not old.
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

    /// Entries for one segment: those that somebody has begun to seal, or those that are old. The last of all stays.
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
                    let text = format!("old entries of the audit stay in the store: {broken}");
                    Error::new(error::Kind::Internal, "audit_broken", text)
                })?;
            }
        }
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// Writes the file, and takes the entries out of the store when it is on the disk.
    async fn put_away(&self, folder: &Path, segment: Segment, text: Vec<u8>) -> Result<()> {
        let (tenant, path) = (segment.tenant, folder.join(segment.file()));
        let file = path.clone();
        let written = spawn_blocking(move || private::write(&file, &text, &System)).await;
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
            // Another hub was faster. Only if it has sealed the very same is this its file.
            let other = self.store.document(tenant, &Key::new(Kind::Segment, id)).await?;
            let other = other.map(|other| other.document.read::<Segment>()).transpose()?;
            if other.is_some_and(|other| other.file() != segment.file()) {
                let _ = spawn_blocking(move || std::fs::remove_file(path)).await; // it is no harm, only in the way
            }
        }
        kept
    }
}

fn unsealed(folder: &Path, error: &std::io::Error) -> Error {
    let text = format!("old entries of the audit cannot be written to `{}`: {error}", folder.display());
    Error::new(error::Kind::Unavailable, "segment_unwritable", text)
}
