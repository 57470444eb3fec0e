//! Audit segments: old audit entries in files of JSON lines outside the store. The last line gives the position in the
//! chain, signed. The store has a copy of that line, so that a changed, truncated or exchanged file is detected.
//!
//! The same entries produce the same file, byte by byte: an interrupted sealing is repeated, and no entry exists twice.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::audit::{AuditSigner, ChainError, ChainHead, StoredAuditEntry, is_signed};
use crate::digest::{Digest, DigestBuilder};
use crate::id::TenantId;
use crate::text::{hex, unhex};

/// Maximum length of a line of an audit segment file. An entry has few fields, all of them short.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Last line of an audit segment file: what the file contains, with a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFooter {
    /// Number of the segment in its tenant, from 1.
    pub segment: u64,
    /// Tenant of the audit entries in the segment.
    pub tenant: TenantId,
    /// Number of the first audit entry of the segment.
    pub first: u64,
    /// Number of the last audit entry of the segment.
    pub last: u64,
    /// Number of audit entries in the segment.
    pub count: u64,
    /// Hash of the entry before the first entry of the segment.
    #[serde(rename = "before")]
    pub previous_hash: Digest,
    /// Hash of the last entry of the segment.
    #[serde(rename = "after")]
    pub last_hash: Digest,
    /// Digest of all lines of the segment file before this one.
    pub digest: Digest,
    /// Ed25519 signature of the segment in hexadecimal.
    signature: String,
}

/// Audit entry as a line of a segment file or of an export.
#[derive(Serialize, Deserialize)]
pub(super) struct SegmentEntry {
    number: u64,
    at: Timestamp,
    actor: String,
    action: String,
    /// Exact JSON text of the fields of the audit entry, which the hash covers.
    fields: Box<RawValue>,
    hash: Digest,
}

impl SegmentFooter {
    /// Returns the chain head before the first entry of the segment.
    pub fn start_head(&self) -> ChainHead {
        ChainHead { number: self.first.saturating_sub(1), hash: self.previous_hash }
    }

    /// Returns the chain head after the last entry of the segment.
    pub fn end_head(&self) -> ChainHead {
        ChainHead { number: self.last, hash: self.last_hash }
    }

    /// Returns the name of the file that contains the audit segment.
    pub fn file_name(&self) -> String {
        format!("{}{:012}.jsonl", file_prefix(self.tenant, self.first), self.last)
    }

    /// Returns whether the signature of the audit segment is valid under this public key and its numbers are
    /// consistent.
    pub fn is_signed_by(&self, public_key: &[u8]) -> bool {
        let is_consistent =
            self.first > 0 && self.last >= self.first && self.count == self.last - self.first + 1;
        let signature = unhex(&self.signature).unwrap_or_default();
        is_consistent && is_signed(public_key, &self.signing_text(), &signature)
    }

    fn signing_text(&self) -> Vec<u8> {
        let SegmentFooter { segment, tenant, first, last, previous_hash, last_hash, digest, .. } = self;
        format!("linchpin segment 1|{tenant}|{segment}|{first}|{last}|{previous_hash}|{last_hash}|{digest}")
            .into_bytes()
    }

    /// Reads the segment file in a folder, entry by entry, and verifies that it belongs to this segment, complete and
    /// unchanged. Returns `false` if the file does not exist.
    pub fn read<E: From<ChainError>>(
        &self,
        folder: &Path,
        mut on_entry: impl FnMut(StoredAuditEntry) -> Result<(), E>,
    ) -> Result<bool, E> {
        let broken = ChainError::new;
        let unreadable = |_| broken(self.first, "the segment file of the entry cannot be read");
        let file = match File::open(folder.join(self.file_name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file.map_err(unreadable)?,
        };
        let (mut lines, mut head, mut digest) = (BufReader::new(file), self.start_head(), new_digest());
        let mut line = Vec::new();
        loop {
            line.clear();
            lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(unreadable)?;
            if !line.ends_with(b"\n") {
                return Err(broken(head.number + 1, "the segment file of the entry is cut off").into());
            }
            if head.number == self.last {
                break;
            }
            let Ok(read) = serde_json::from_slice::<SegmentEntry>(&line) else {
                return Err(broken(
                    head.number + 1,
                    "the line of the entry in the segment file is not an audit entry",
                )
                .into());
            };
            let row = StoredAuditEntry::from(read);
            head.verify_next(&row)?;
            digest.add(&line);
            on_entry(row)?;
        }
        let is_same = serde_json::from_slice::<SegmentFooter>(&line).is_ok_and(|last| last == *self);
        if !is_same || digest.finish() != self.digest || head != self.end_head() {
            return Err(broken(
                self.first,
                "the segment file of the entry differs from the file that was sealed",
            )
            .into());
        }
        let is_end = lines.fill_buf().map_err(unreadable)?.is_empty();
        is_end.then_some(true).ok_or_else(|| {
            broken(self.last, "the segment file of the entry has data after its last line").into()
        })
    }
}

/// Returns the prefix of the names of segment files whose first entry has this number.
fn file_prefix(tenant: TenantId, first: u64) -> String {
    format!("{tenant}-{first:012}-")
}

/// Returns the number of the last entry of a segment file that an interrupted sealing has left and that starts with
/// entry `first`.
pub(crate) fn find_partial(folder: &Path, tenant: TenantId, first: u64) -> Option<u64> {
    let prefix = file_prefix(tenant, first);
    let last = |name: &str| name.strip_prefix(&*prefix)?.strip_suffix(".jsonl")?.parse().ok();
    std::fs::read_dir(folder).ok()?.flatten().filter_map(|file| last(file.file_name().to_str()?)).min()
}

fn new_digest() -> DigestBuilder {
    Digest::of("linchpin segment")
}

/// Builder of an audit segment file: entries are added in order, and the end is signed.
pub(crate) struct SegmentBuilder {
    start: ChainHead,
    head: ChainHead,
    pub(crate) text: Vec<u8>,
}

impl SegmentBuilder {
    /// Creates a builder of an audit segment whose entries start after this chain head.
    pub(crate) fn new(start: ChainHead) -> Self {
        SegmentBuilder { start, head: start, text: Vec::new() }
    }

    /// Returns the number of the next audit entry of the segment.
    pub(crate) fn next_number(&self) -> u64 {
        self.head.number + 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.head
    }

    /// Verifies the next audit entry and adds it to the segment.
    pub(crate) fn add(&mut self, row: StoredAuditEntry) -> Result<(), ChainError> {
        self.head.verify_next(&row)?;
        let number = row.number;
        let invalid_fields = |_| ChainError::new(number, "the fields of the entry are not valid JSON");
        let line = SegmentEntry::try_from(row).map_err(invalid_fields)?;
        let mut line = serde_json::to_vec(&line).map_err(invalid_fields)?;
        line.push(b'\n');
        self.text.extend(line);
        Ok(())
    }

    /// Completes and signs the audit segment. Returns it with the contents of its file.
    pub(crate) fn seal(
        mut self,
        signer: &AuditSigner,
        tenant: TenantId,
        number: u64,
    ) -> serde_json::Result<(SegmentFooter, Vec<u8>)> {
        let mut segment = SegmentFooter {
            segment: number,
            tenant,
            first: self.start.number + 1,
            last: self.head.number,
            count: self.head.number - self.start.number,
            previous_hash: self.start.hash,
            last_hash: self.head.hash,
            digest: self
                .text
                .split_inclusive(|byte| *byte == b'\n')
                .fold(new_digest(), DigestBuilder::part)
                .finish(),
            signature: String::new(),
        };
        segment.signature = hex(&signer.sign_text(&segment.signing_text()));
        serde_json::to_writer(&mut self.text, &segment)?;
        self.text.push(b'\n');
        Ok((segment, self.text))
    }
}

impl TryFrom<StoredAuditEntry> for SegmentEntry {
    type Error = serde_json::Error;

    fn try_from(row: StoredAuditEntry) -> serde_json::Result<Self> {
        let StoredAuditEntry { number, at, actor, action, fields, hash, code: _ } = row;
        Ok(SegmentEntry { number, at, actor, action, fields: RawValue::from_string(fields)?, hash })
    }
}

impl From<SegmentEntry> for StoredAuditEntry {
    fn from(line: SegmentEntry) -> Self {
        let SegmentEntry { number, at, actor, action, fields, hash } = line;
        StoredAuditEntry { number, at, actor, action, fields: fields.get().to_owned(), hash, code: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_names_of_the_file_format_stay() {
        let digest = |text: &str| Digest::of(text).finish();
        let line = json!({
            "segment": 1, "tenant": TenantId::from_u128(1), "first": 1, "last": 2, "count": 2, "before": digest("a"),
            "after": digest("b"), "digest": digest("c"), "signature": "00",
        });
        let segment: SegmentFooter = serde_json::from_value(line.clone()).unwrap();
        assert_eq!((segment.start_head().hash, segment.end_head().hash), (digest("a"), digest("b")));
        assert_eq!(serde_json::to_value(&segment).unwrap(), line);
    }
}
