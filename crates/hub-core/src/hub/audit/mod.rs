//! Audit operations of the hub: reading, verification and signing of checkpoints.

mod documents;
pub(super) mod heads;
mod history_check;
pub(super) mod query;
pub(super) mod rejections;
pub(super) mod repeated_events;
pub(super) mod retention;
pub(super) mod verify;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::heads::Heads;
use self::rejections::Rejections;
use self::retention::Retention;
use self::verify::{AuditFiles, AuditVerification, list_segments, verify};
use crate::actor::Actor;
use crate::audit::export::ExportFooter;
use crate::audit::segment::SegmentFooter;
use crate::audit::{AuditSigner, ChainHead, Checkpoint, StoredAuditEntry};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::HubOptions;
use crate::hub::context::HubContext;
use crate::id::TenantId;
use crate::store::{Batch, Store, StoreChange};
use crate::text::{hex, unhex};

/// Audit entry as shown to users.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditView {
    /// Entry number, from 1, without gaps.
    pub number: u64,
    /// Time of the recorded action.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Subject that acted: `user:ID`, `agent:ID` or `hub`.
    pub actor: String,
    /// Current name of the user or agent that acted. Absent in exports, and if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Action of the audit entry, such as `call.intent`.
    pub action: String,
    /// Further fields of the audit entry, by name.
    pub fields: Value,
    /// Current names of the users, agents and servers in `fields`, by field. Absent in exports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// Digest of this entry and all before it.
    pub hash: String,
}

/// Checkpoint as one line of the checkpoint file.
#[derive(Serialize, Deserialize)]
struct CheckpointLine {
    tenant: TenantId,
    number: u64,
    hash: String,
    at: Timestamp,
    signature: String,
}

impl From<StoredAuditEntry> for AuditView {
    fn from(row: StoredAuditEntry) -> Self {
        let StoredAuditEntry { number, at, actor, action, fields, hash, code: _ } = row;
        // Fields that were tampered with are shown as they are: the verification of the chain finds them.
        let fields = serde_json::from_str(&fields).unwrap_or(Value::String(fields));
        let (hash, names) = (hash.to_string(), BTreeMap::new());
        AuditView { number, at, actor, actor_name: None, action, fields, names, hash }
    }
}

/// Audit of the hub: its chain of entries, the signatures of its end, its archive, and repeated rejections.
pub struct Audit {
    context: Arc<HubContext>,
    signer: AuditSigner,
    heads: Heads,
    retention: Mutex<Retention>,
    rejections: Arc<Rejections>,
}

impl Audit {
    pub(in crate::hub) fn new(context: Arc<HubContext>, signer: AuditSigner) -> Self {
        let retention = Mutex::new(context.options.retention);
        Audit { context, signer, heads: Heads::default(), retention, rejections: Arc::default() }
    }

    /// Lists at most `limit` audit entries that follow the entry with the number `after`.
    pub async fn entries(&self, actor: Actor, after: u64, limit: usize) -> Result<Vec<AuditView>> {
        actor.require_user()?;
        let rows = self.context.store.audit_entries(actor.tenant(), after, limit).await?;
        Ok(rows.into_iter().map(AuditView::from).collect())
    }

    /// Returns the number of entries in the audit log of the tenant.
    pub async fn entry_count(&self, actor: Actor) -> Result<u64> {
        actor.require_user()?;
        Ok(self.context.store.audit_head(actor.tenant()).await?.number)
    }

    /// Verifies that every audit entry and document of the tenant is as it was written and that no entry is missing.
    pub async fn verify(&self, actor: Actor) -> Result<AuditVerification> {
        actor.require_user()?;
        let HubOptions { checkpoints, heads, segments, .. } = self.context.options.clone();
        let files = AuditFiles { checkpoints, heads, segments };
        verify(self.unchecked_store(), actor.tenant(), &self.signer, &files).await
    }

    /// Verifies the audit, and signs an export of the entries `first` to `last`.
    pub async fn export_footer(&self, actor: Actor, first: u64, last: u64) -> Result<ExportFooter> {
        actor.require_user()?;
        let (store, tenant) = (&*self.context.store, actor.tenant());
        self.verify(actor).await?.require_intact()?;
        let archived = || {
            let text = "entries were archived during the export: export them again";
            Error::new(error::ErrorKind::Conflict, "audit_archived", text)
        };
        let previous = chain_head_at(store, tenant, first - 1).await?.ok_or_else(archived)?;
        let last = chain_head_at(store, tenant, last).await?.ok_or_else(archived)?;
        let now = self.context.platform.now();
        Ok(ExportFooter::sign(&self.signer, tenant, (previous, last), Vec::new(), now))
    }

    /// Signs the audit chain head of a tenant if it has moved since the last checkpoint, unless it has diverged from the
    /// signed head.
    pub(in crate::hub) async fn checkpoint(&self, tenant: TenantId) -> Result<()> {
        if self.has_diverged(tenant).await {
            return Ok(());
        }
        let head = self.context.store.audit_head(tenant).await?;
        let last = self.context.store.checkpoint(tenant).await?;
        // Ignore a checkpoint that was not signed with this key.
        let last = last.filter(|last| last.is_signed_by(self.signer.public_key()));
        if head.number == 0 || last.is_some_and(|last| last.head.number >= head.number) {
            return Ok(());
        }
        let checkpoint = self.signer.sign(tenant, head, self.context.platform.now());
        // Write the file first: a checkpoint that is already in the store would not be written to the file again.
        if let Some(file) = self.context.options.checkpoints.clone() {
            append_checkpoint(file, checkpoint.clone()).await?;
        }
        self.context
            .store
            .commit(tenant, Batch::new().change(StoreChange::InsertCheckpoint(checkpoint)))
            .await
    }
}

/// Returns the head of a tenant's chain at an entry, unless the entry is within an archived segment.
pub async fn chain_head_at(store: &dyn Store, tenant: TenantId, number: u64) -> Result<Option<ChainHead>> {
    let Some(before) = number.checked_sub(1) else { return Ok(Some(ChainHead::start(tenant))) };
    let row = store.audit_entries(tenant, before, 1).await?.pop().filter(|row| row.number == number);
    if let Some(row) = row {
        return Ok(Some(ChainHead { number, hash: row.hash }));
    }
    let segments = list_segments(store, tenant).await?;
    Ok(segments.iter().map(SegmentFooter::end_head).find(|head| head.number == number))
}

/// Appends an audit checkpoint to the checkpoint file.
async fn append_checkpoint(file: PathBuf, checkpoint: Checkpoint) -> Result<()> {
    let name = file.display().to_string();
    let write_result = tokio::task::spawn_blocking(move || append(&file, &checkpoint)).await;
    write_result.map_err(std::io::Error::other).and_then(|result| result).map_err(|error| {
        let text = format!("failed to write the audit checkpoint to `{name}`: {error}");
        Error::new(error::ErrorKind::Unavailable, "checkpoint_unwritable", text)
    })
}

fn append(path: &Path, checkpoint: &Checkpoint) -> std::io::Result<()> {
    let Checkpoint { tenant, head, at, signature } = checkpoint;
    let (tenant, number, at) = (*tenant, head.number, *at);
    let line = CheckpointLine { tenant, number, hash: head.hash.to_string(), at, signature: hex(signature) };
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Start a new line, since the last one may have been truncated by a full disk.
    let text = serde_json::to_string(&line).map_err(std::io::Error::other)?;
    options.open(path)?.write_all(format!("\n{text}\n").as_bytes())
}

/// Returns the last signed checkpoint of a tenant in a file, and the number of later ones that are not signed with this
/// key.
pub fn last_checkpoint(
    file: &Path,
    tenant: TenantId,
    public_key: &[u8],
) -> Result<(Option<Checkpoint>, usize)> {
    let unreadable = |reason: String| {
        let text = format!("failed to read the checkpoints in `{}`: {reason}", file.display());
        Error::new(error::ErrorKind::Unavailable, "checkpoints_unreadable", text)
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((None, 0)),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    // A line may be truncated by a crash or a full disk. The complete ones suffice.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<CheckpointLine>(line).ok());
    let read = |line: CheckpointLine| {
        let hash = Digest::from_bytes(unhex(&line.hash)?.try_into().ok()?);
        let (head, signature) = (ChainHead { number: line.number, hash }, unhex(&line.signature)?);
        Some(Checkpoint { tenant, head, at: line.at, signature })
    };
    let mut all: Vec<_> = lines.filter(|line| line.tenant == tenant).filter_map(read).collect();
    all.sort_by_key(|one| one.head.number);
    // From the last one backwards: verifies one signature more than there are wrong ones.
    let mut unsigned = 0;
    while let Some(last) = all.pop() {
        if last.is_signed_by(public_key) {
            return Ok((Some(last), unsigned));
        }
        unsigned += 1;
    }
    Ok((None, unsigned))
}
