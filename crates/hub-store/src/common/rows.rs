//! Row readers: documents, calls, approvals, audit entries and checkpoints from rows of either database.

use jiff::Timestamp;
use linchpin_hub_core::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, ServerId, TenantId};
use linchpin_hub_core::rate_limit::TokenBucket;
use linchpin_hub_core::store::{
    Approval, ApprovalStatus, CallRecord, CallStatus, Document, DocumentKey, DocumentKind, StoredDocument,
};

/// Row of a query result.
pub(crate) trait StoredRow {
    /// Error of the database.
    type Error;

    /// Reads an id.
    fn id(&self, column: usize) -> Result<u128, Self::Error>;
    /// Reads a text; `None` for `NULL`.
    fn text(&self, column: usize) -> Result<Option<String>, Self::Error>;
    /// Reads bytes; `None` for `NULL`.
    fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>, Self::Error>;
    /// Reads an integer; `None` for `NULL`.
    fn integer(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    /// Reads a floating-point number.
    fn real(&self, column: usize) -> Result<f64, Self::Error>;
    /// Reads a boolean.
    fn boolean(&self, column: usize) -> Result<bool, Self::Error>;
    /// Creates the error for a column that cannot be decoded.
    fn invalid(message: &'static str) -> Self::Error;

    /// Reads a text that is never `NULL`.
    fn required_text(&self, column: usize) -> Result<String, Self::Error> {
        self.text(column)?.ok_or_else(|| Self::invalid("missing text"))
    }

    /// Reads a number that is never negative or `NULL`.
    fn number(&self, column: usize) -> Result<u64, Self::Error> {
        let found = self.integer(column)?.and_then(|number| u64::try_from(number).ok());
        found.ok_or_else(|| Self::invalid("missing or negative number"))
    }

    /// Reads a time; `None` for `NULL`.
    fn optional_time(&self, column: usize) -> Result<Option<Timestamp>, Self::Error> {
        let read = |at| Timestamp::from_millisecond(at).map_err(|_| Self::invalid("invalid time"));
        self.integer(column)?.map(read).transpose()
    }

    /// Reads a time that is never `NULL`.
    fn time(&self, column: usize) -> Result<Timestamp, Self::Error> {
        self.optional_time(column)?.ok_or_else(|| Self::invalid("missing time"))
    }

    /// Reads a digest; `None` for `NULL`.
    fn optional_digest(&self, column: usize) -> Result<Option<Digest>, Self::Error> {
        let read = |bytes: Vec<u8>| bytes.try_into().map(Digest::from_bytes);
        self.bytes(column)?.map(read).transpose().map_err(|_| Self::invalid("invalid digest"))
    }

    /// Reads a digest that is never `NULL`.
    fn digest(&self, column: usize) -> Result<Digest, Self::Error> {
        self.optional_digest(column)?.ok_or_else(|| Self::invalid("missing digest"))
    }
}

/// Reads the columns [`super::documents::COLUMNS`].
pub(crate) fn read_document<R: StoredRow>(kind: DocumentKind, row: &R) -> Result<StoredDocument, R::Error> {
    let body = serde_json::from_str(&row.required_text(4)?)
        .map_err(|_| R::invalid("a stored document is not JSON"))?;
    let key = DocumentKey::new(kind, row.required_text(0)?);
    let (name, parent, code) = (row.text(1)?, row.text(2)?, row.optional_digest(5)?);
    let document = Document { key, name, parent, body, code };
    Ok(StoredDocument { document, version: row.number(3)? })
}

/// Reads the kind of a document.
pub(crate) fn read_kind<R: StoredRow>(row: &R, column: usize) -> Result<DocumentKind, R::Error> {
    DocumentKind::find(&row.required_text(column)?).ok_or_else(|| R::invalid("unknown kind"))
}

/// Reads the columns [`super::calls::CALL_COLUMNS`].
pub(crate) fn read_call<R: StoredRow>(row: &R) -> Result<CallRecord, R::Error> {
    Ok(CallRecord {
        id: CallId::from_u128(row.id(0)?),
        server: ServerId::from_u128(row.id(1)?),
        tool: row.required_text(2)?,
        subject: row.required_text(3)?,
        status: CallStatus::find(&row.required_text(4)?).ok_or_else(|| R::invalid("unknown status"))?,
        digest: row.digest(5)?,
        arguments: row.bytes(6)?,
        result: row.bytes(7)?,
        error: row.bytes(8)?,
        created: row.time(9)?,
        started: row.optional_time(10)?,
        completed: row.optional_time(11)?,
    })
}

/// Reads the columns [`super::calls::APPROVAL_COLUMNS`].
pub(crate) fn read_approval<R: StoredRow>(row: &R) -> Result<Approval, R::Error> {
    let decision = ApprovalStatus::find(&row.required_text(3)?);
    Ok(Approval {
        id: ApprovalId::from_u128(row.id(0)?),
        call: CallId::from_u128(row.id(1)?),
        digest: row.digest(2)?,
        decision: decision.ok_or_else(|| R::invalid("unknown decision"))?,
        decided_by: row.text(4)?,
        created: row.time(5)?,
        expires: row.time(6)?,
        decided: row.optional_time(7)?,
    })
}

/// Reads the columns [`super::audit::ENTRY_COLUMNS`].
pub(crate) fn read_entry<R: StoredRow>(row: &R) -> Result<StoredAuditEntry, R::Error> {
    Ok(StoredAuditEntry {
        number: row.number(0)?,
        at: row.time(1)?,
        actor: row.required_text(2)?,
        action: row.required_text(3)?,
        fields: row.required_text(4)?,
        hash: row.digest(5)?,
        code: row.optional_digest(6)?,
    })
}

/// Reads the number and hash of a chain head.
pub(crate) fn read_head<R: StoredRow>(row: &R, column: usize) -> Result<ChainHead, R::Error> {
    Ok(ChainHead { number: row.number(column)?, hash: row.digest(column + 1)? })
}

/// Reads the columns [`super::audit::CHECKPOINT_COLUMNS`].
pub(crate) fn read_checkpoint<R: StoredRow>(row: &R, tenant: TenantId) -> Result<Checkpoint, R::Error> {
    let signature = row.bytes(3)?.ok_or_else(|| R::invalid("missing signature"))?;
    Ok(Checkpoint { tenant, head: read_head(row, 0)?, at: row.time(2)?, signature })
}

/// Reads the level and time of a token bucket.
pub(crate) fn read_bucket<R: StoredRow>(row: &R) -> Result<TokenBucket, R::Error> {
    Ok(TokenBucket { tokens: row.real(0)?, updated: row.time(1)? })
}
