//! SQL of the audit and its checkpoints.

use linchpin_hub_core::audit::{AuditEntry, ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::Batch;
use linchpin_hub_core::{Error, error};

use super::refusal::Refusal;
use super::rows::{StoredRow, read_head};
use super::value::Value;
use super::{Statement, to_integer, to_millis};

pub(crate) const CHECKPOINT_COLUMNS: &str = "number, hash, at, signature";

pub(crate) const SELECT_CHECKPOINT: &str = "SELECT number, hash, at, signature FROM checkpoints
     WHERE tenant = $1 ORDER BY number DESC LIMIT 1";
/// SQL that deletes the checkpoints of sealed entries, except the last checkpoint.
pub(crate) const DELETE_CHECKPOINTS: &str = "DELETE FROM checkpoints WHERE tenant = $1 AND number <= $2
     AND number < (SELECT max(number) FROM checkpoints WHERE tenant = $1)";
const INSERT_CHECKPOINT: &str =
    "INSERT INTO checkpoints (tenant, number, hash, at, signature) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT DO NOTHING";

/// Head of a chain as stored, with the code of its entry.
pub(crate) struct StoredHead {
    pub(crate) head: ChainHead,
    code: Option<Digest>,
    /// Whether the entry has no code although an earlier one has.
    is_code_missing: bool,
}

impl StoredHead {
    /// Creates the head of a chain without entries.
    pub(crate) fn start(tenant: TenantId) -> Self {
        StoredHead { head: ChainHead::start(tenant), code: None, is_code_missing: false }
    }

    /// Reads number, hash and code of the last entry, and whether its code is missing.
    pub(crate) fn read<R: StoredRow>(row: &R, column: usize) -> Result<Self, R::Error> {
        let (head, code) = (read_head(row, column)?, row.optional_digest(column + 2)?);
        Ok(StoredHead { head, code, is_code_missing: row.boolean(column + 3)? })
    }

    /// Appends an entry of a batch, and returns it as stored.
    pub(crate) fn append(&mut self, entry: AuditEntry, batch: &Batch) -> StoredAuditEntry {
        let row = self.head.append_authentic(entry, batch.authenticator.as_deref());
        self.code = row.code;
        row
    }

    /// Checks that a hub has written the last entry, before it appends the entries of a batch.
    pub(crate) fn check(&self, batch: &Batch) -> Result<(), Error> {
        let Some(authenticator) = batch.authenticator.as_ref().filter(|_| batch.requires_authentic_head)
        else {
            return Ok(());
        };
        let is_authentic = match &self.code {
            Some(code) => authenticator.is_entry_code(&self.head.hash, code),
            None => !self.is_code_missing,
        };
        is_authentic.then_some(()).ok_or_else(|| {
            let text = format!(
                "another program has added or changed entry {} of the audit, so nothing is stored: run `linchpin audit \
                 verify`, and restore a backup or, if you made the change, stop the hub and run `linchpin audit accept`",
                self.head.number
            );
            Error::new(error::ErrorKind::Unavailable, "audit_tampered", text)
        })
    }
}

/// Creates the statement that inserts a checkpoint.
pub(crate) fn insert_checkpoint<'a>(tenant: Value<'a>, checkpoint: &'a Checkpoint) -> Statement<'a> {
    let Checkpoint { head, at, signature, .. } = checkpoint;
    let values = vec![
        tenant,
        to_integer(head.number).into(),
        (&head.hash).into(),
        to_millis(*at).into(),
        signature.into(),
    ];
    Statement { sql: INSERT_CHECKPOINT, values, refusal: Refusal::Never }
}
