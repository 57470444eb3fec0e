//! The audit, as people see and check it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::verifying::{Beside, Verified, verify};
use super::{Hub, Options};
use crate::audit::{Checkpoint, Head, Row};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::scope::Scope;
use crate::store::{Batch, Change};
use crate::text::{hex, unhex};

/// An entry of the audit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditView {
    /// From one on, without a gap.
    pub number: u64,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// The rest.
    pub fields: Value,
    /// The digest of this entry and all before it.
    pub hash: String,
}

/// A checkpoint as it is kept in a file of its own, one on a line.
#[derive(Serialize, Deserialize)]
struct Line {
    tenant: TenantId,
    number: u64,
    hash: String,
    at: Timestamp,
    signature: String,
}

impl From<Row> for AuditView {
    fn from(row: Row) -> Self {
        let Row { number, at, actor, action, fields, hash } = row;
        // What somebody made of it in the file is for the check of the chain to find.
        let fields = serde_json::from_str(&fields).unwrap_or(Value::String(fields));
        AuditView { number, at, actor, action, fields, hash: hash.to_string() }
    }
}

impl Hub {
    /// Entries that come after a number.
    pub async fn audit(&self, scope: Scope, after: u64, limit: usize) -> Result<Vec<AuditView>> {
        scope.person()?;
        let rows = self.store.audit(scope.tenant(), after, limit).await?;
        Ok(rows.into_iter().map(AuditView::from).collect())
    }

    /// Checks that every entry is as it was written, and that none is missing.
    pub async fn verify_audit(&self, scope: Scope) -> Result<Verified> {
        scope.person()?;
        let Options { checkpoints, heads, segments, .. } = self.options.clone();
        let beside = Beside { checkpoints, heads, segments };
        verify(&*self.store, scope.tenant(), self.signer.public_key(), &beside).await
    }

    /// Signs how far the audit goes, if it has gone on.
    pub(super) async fn checkpoint(&self, tenant: TenantId) -> Result<()> {
        let head = self.store.head(tenant).await?;
        let last = self.store.checkpoint(tenant).await?;
        // One that another user has written does not count.
        let last = last.filter(|last| last.is_signed_by(self.signer.public_key()));
        if head.number == 0 || last.is_some_and(|last| last.head.number >= head.number) {
            return Ok(());
        }
        let checkpoint = self.signer.sign(tenant, head, self.world.now());
        // In the file first: what is in the store alone would not be written there again.
        if let Some(file) = self.options.checkpoints.clone() {
            file_away(file, checkpoint.clone()).await?;
        }
        self.store.commit(tenant, Batch::new().change(Change::Checkpoint(checkpoint))).await
    }
}

/// Adds a checkpoint to a file.
async fn file_away(file: PathBuf, checkpoint: Checkpoint) -> Result<()> {
    let name = file.display().to_string();
    let written = tokio::task::spawn_blocking(move || append(&file, &checkpoint)).await;
    written.map_err(std::io::Error::other).and_then(|written| written).map_err(|error| {
        let text = format!("the checkpoint of the audit cannot be written to `{name}`: {error}");
        Error::new(error::Kind::Unavailable, "checkpoint_unwritable", text)
    })
}

fn append(path: &Path, checkpoint: &Checkpoint) -> std::io::Result<()> {
    let Checkpoint { tenant, head, at, signature } = checkpoint;
    let (tenant, number, at) = (*tenant, head.number, *at);
    let line = Line { tenant, number, hash: head.hash.to_string(), at, signature: hex(signature) };
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // On a line of its own, also after one that was cut off by a full disk.
    let text = serde_json::to_string(&line).map_err(std::io::Error::other)?;
    options.open(path)?.write_all(format!("\n{text}\n").as_bytes())
}

/// The last signed checkpoint of a tenant in a file, and how many others are not signed with this key.
pub fn last_checkpoint(
    file: &Path,
    tenant: TenantId,
    public_key: &[u8],
) -> Result<(Option<Checkpoint>, usize)> {
    let unreadable = |what: String| {
        let text = format!("the checkpoints in `{}` cannot be read: {what}", file.display());
        Error::new(error::Kind::Unavailable, "checkpoints_unreadable", text)
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((None, 0)),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    // A line may have been cut off when the hub was killed, or the disk was full. Those that are whole say enough.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let read = |line: Line| {
        let hash = Digest::from_bytes(unhex(&line.hash)?.try_into().ok()?);
        let (head, signature) = (Head { number: line.number, hash }, unhex(&line.signature)?);
        Some(Checkpoint { tenant, head, at: line.at, signature })
    };
    let mut all: Vec<_> = lines.filter(|line| line.tenant == tenant).filter_map(read).collect();
    all.sort_by_key(|one| one.head.number);
    // From the last one back: as many signatures are checked as are wrong, and one more.
    let mut unsigned = 0;
    while let Some(last) = all.pop() {
        if last.is_signed_by(public_key) {
            return Ok((Some(last), unsigned));
        }
        unsigned += 1;
    }
    Ok((None, unsigned))
}
