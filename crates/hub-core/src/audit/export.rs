//! Audit exports: JSON lines of entries, and a signed last line with the public key. The public key suffices to verify an
//! export, but not to forge one.

use std::io::BufRead;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::segment::{SegmentEntry, SegmentFooter};
use super::{AuditSigner, ChainError, ChainHead, StoredAuditEntry, is_signed};
use crate::id::TenantId;
use crate::text::{hex, unhex};

/// Maximum length of a line of an export in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Version of the format of exports.
const FORMAT_VERSION: u32 = 1;

/// Last line of an audit export: the part of the chain that the export contains, signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportFooter {
    /// Version of the format of the export.
    export: u32,
    /// Tenant of the audit.
    tenant: TenantId,
    /// Head of the chain before the first entry of the export.
    previous: ChainHead,
    /// Head of the chain at the last entry of the export.
    last: ChainHead,
    /// Numbers of the segments whose entries are not in the export, because their files are not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_segments: Vec<u64>,
    /// Time at which the export was signed.
    at: Timestamp,
    /// Ed25519 public key of the signature, in hexadecimal.
    public_key: String,
    /// Ed25519 signature over the members before the public key, in hexadecimal.
    signature: String,
}

impl ExportFooter {
    /// Signs an export of the entries after `previous` up to `last`, without those of the missing segments. The caller
    /// has verified the audit.
    pub fn sign(
        signer: &AuditSigner,
        tenant: TenantId,
        (previous, last): (ChainHead, ChainHead),
        missing_segments: Vec<u64>,
        at: Timestamp,
    ) -> Self {
        let (public_key, signature) = (hex(signer.public_key()), String::new());
        let mut footer = ExportFooter {
            export: FORMAT_VERSION,
            tenant,
            previous,
            last,
            missing_segments,
            at,
            public_key,
            signature,
        };
        footer.signature = hex(&signer.sign_text(&footer.signing_text()));
        footer
    }

    fn signing_text(&self) -> Vec<u8> {
        let ExportFooter { export, tenant, previous, last, missing_segments, at, .. } = self;
        let missing = missing_segments.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let ChainHead { number, hash } = previous;
        format!(
            "linchpin export {export}|{tenant}|{number}|{hash}|{}|{}|{missing}|{at}",
            last.number, last.hash
        )
        .into_bytes()
    }

    fn is_signed(&self) -> bool {
        let key = unhex(&self.public_key).unwrap_or_default();
        let signature = unhex(&self.signature).unwrap_or_default();
        is_signed(&key, &self.signing_text(), &signature)
    }
}

/// What an intact export contains, and who signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExportVerification {
    /// Number of the first entry.
    pub first: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Number of verified entries. The entries of archived segments without files are not in the export.
    pub entries: u64,
    /// Time at which the export was signed.
    #[schemars(with = "String")]
    pub signed_at: Timestamp,
    /// Ed25519 public key of the signature, in hexadecimal.
    pub public_key: String,
}

/// Error that the verification of an export found.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The export cannot be read.
    #[error("the export cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// An entry is changed, missing or out of order.
    #[error(transparent)]
    Damaged(#[from] ChainError),
    /// A line is not part of an export.
    #[error("line {0} is not part of an audit export: use a file that `linchpin audit export` has written")]
    InvalidLine(u64),
    /// The signed last line is missing.
    #[error("the end of the export is missing: its last line must be signed")]
    Unsigned,
    /// The entries of a segment are missing although the signed line does not say so.
    #[error("the entries of a segment were removed from the export, or added to it")]
    EntriesRemoved,
    /// A signature is wrong.
    #[error("the signature of {0} is wrong: it was changed")]
    WrongSignature(String),
    /// The export is signed with another key than the expected one.
    #[error("the export is signed with the key {found}, not with {expected}")]
    OtherKey {
        /// Key that signed the export.
        found: String,
        /// Key that the caller expects.
        expected: String,
    },
    /// The format is newer than this version.
    #[error("the export was written by a newer version: verify it with that version")]
    TooNew,
}

/// Verifies an export: each entry continues the chain, and the last line signs its start and end. `public_key`, in
/// hexadecimal, is the key that must have signed it; without it, the caller compares the key in the result.
pub fn verify_export(
    mut input: impl BufRead,
    public_key: Option<&str>,
) -> Result<ExportVerification, ExportError> {
    let (mut check, mut line, mut number) = (ExportCheck::default(), Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        std::io::Read::take(&mut input, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(ExportError::Unsigned);
        }
        let invalid = |_| ExportError::InvalidLine(number);
        let members: serde_json::Map<String, Value> = serde_json::from_slice(&line).map_err(invalid)?;
        if members.contains_key("export") {
            if members["export"].as_u64() > Some(FORMAT_VERSION.into()) {
                return Err(ExportError::TooNew);
            }
            let footer = serde_json::from_slice(&line).map_err(invalid)?;
            if !input.fill_buf()?.is_empty() {
                return Err(ExportError::InvalidLine(number + 1));
            }
            return check.finish(footer, public_key);
        } else if members.contains_key("segment") {
            let segment: SegmentFooter = serde_json::from_slice(&line).map_err(invalid)?;
            if members.get("is_available") == Some(&Value::Bool(false)) {
                check.skip(segment)?;
            }
        } else {
            check.add(serde_json::from_slice::<SegmentEntry>(&line).map_err(invalid)?.into())?;
        }
    }
}

/// State of the verification of an export. The head before the first line is known only from the last line.
#[derive(Default)]
struct ExportCheck {
    first: Option<StoredAuditEntry>,
    head: Option<ChainHead>,
    entries: u64,
    /// Segments whose entries are not in the export.
    skipped: Vec<SegmentFooter>,
}

impl ExportCheck {
    fn add(&mut self, row: StoredAuditEntry) -> Result<(), ChainError> {
        self.entries += 1;
        if let Some(head) = &mut self.head {
            return head.verify_next(&row);
        }
        self.head = Some(ChainHead { number: row.number, hash: row.hash });
        self.first = Some(row);
        Ok(())
    }

    fn skip(&mut self, segment: SegmentFooter) -> Result<(), ChainError> {
        if self.head.is_some_and(|head| head != segment.start_head()) {
            return Err(ChainError::new(segment.first, "the segment is missing or out of order"));
        }
        self.head = Some(segment.end_head());
        self.skipped.push(segment);
        Ok(())
    }

    fn finish(self, footer: ExportFooter, expected: Option<&str>) -> Result<ExportVerification, ExportError> {
        if let Some(expected) = expected.filter(|expected| !footer.public_key.eq_ignore_ascii_case(expected))
        {
            return Err(ExportError::OtherKey { found: footer.public_key, expected: expected.to_owned() });
        }
        let key = unhex(&footer.public_key).unwrap_or_default();
        if !footer.is_signed() {
            return Err(ExportError::WrongSignature("the last line".to_owned()));
        }
        if let Some(segment) = self.skipped.iter().find(|segment| !segment.is_signed_by(&key)) {
            return Err(ExportError::WrongSignature(format!("segment {}", segment.segment)));
        }
        let ExportFooter { mut previous, last, missing_segments, at, public_key, .. } = footer;
        if !self.skipped.iter().map(|segment| segment.segment).eq(missing_segments) {
            return Err(ExportError::EntriesRemoved);
        }
        let first = previous.number + 1;
        match (&self.first, self.skipped.first()) {
            // A segment that starts before the export stands for the entries up to its end.
            (first, Some(segment)) if first.as_ref().is_none_or(|first| segment.last < first.number) => {
                if segment.start_head() != previous {
                    return Err(
                        ChainError::new(segment.first, "the segment is missing or out of order").into()
                    );
                }
            }
            (Some(first), _) => previous.verify_next(first)?,
            (None, _) => {}
        }
        if self.head != Some(last) {
            let number = self.head.map_or(0, |head| head.number) + 1;
            return Err(
                ChainError::new(number, "the entry is missing, or an entry before it was changed").into()
            );
        }
        let entries = self.entries;
        Ok(ExportVerification { first, last: last.number, entries, signed_at: at, public_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuditEntry;
    use crate::audit::segment::SegmentBuilder;

    const ADA: TenantId = TenantId::from_u128(1);

    fn signer() -> AuditSigner {
        AuditSigner::new(&[7; 32])
    }

    /// Returns an export of the entries `from..=5`, line by line. The entries up to `archived` are in a segment without
    /// a file.
    fn export(from: u64, archived: u64) -> Vec<String> {
        let (mut head, mut previous) = (ChainHead::start(ADA), ChainHead::start(ADA));
        let (mut lines, mut segment) = (Vec::new(), SegmentBuilder::new(head));
        for number in 1..=5_u32 {
            let row = head.append(
                AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "call.intent")
                    .with("x", 0.1 + f64::from(number)),
            );
            let number = u64::from(number);
            if number < from {
                previous = head;
            } else if number > archived {
                lines.push(serde_json::to_string(&SegmentEntry::try_from(row.clone()).unwrap()).unwrap());
            }
            if number <= archived {
                segment.add(row).unwrap();
            }
        }
        if archived > 0 {
            let (footer, _) = segment.seal(&signer(), ADA, 1).unwrap();
            let mut line = serde_json::to_value(footer).unwrap();
            line["is_available"] = Value::Bool(false);
            lines.insert(0, line.to_string());
        }
        let missing = if archived > 0 { vec![1] } else { Vec::new() };
        let footer = ExportFooter::sign(&signer(), ADA, (previous, head), missing, Timestamp::UNIX_EPOCH);
        lines.push(serde_json::to_string(&footer).unwrap());
        lines
    }

    fn verify(lines: &[String]) -> Result<ExportVerification, ExportError> {
        verify_export((lines.join("\n") + "\n").as_bytes(), None)
    }

    #[test]
    fn an_export_is_verified_with_its_public_key() {
        for (from, archived, entries) in [(1, 0, 5), (3, 0, 3), (5, 0, 1), (1, 2, 3), (1, 5, 0)] {
            let found = verify(&export(from, archived)).unwrap();
            assert_eq!((found.first, found.last, found.entries), (from, 5, entries));
            assert_eq!(found.public_key, hex(signer().public_key()));
        }
        let text = export(1, 0).join("\n") + "\n";
        let (own, other) = (hex(signer().public_key()), hex(AuditSigner::new(&[8; 32]).public_key()));
        assert!(verify_export(text.as_bytes(), Some(&own)).is_ok());
        let error = verify_export(text.as_bytes(), Some(&other)).unwrap_err();
        assert_eq!(error.to_string(), format!("the export is signed with the key {own}, not with {other}"));
    }

    #[test]
    fn every_change_of_an_export_is_found() {
        for archived in [0, 2] {
            let lines = export(1, archived);
            for index in 0..lines.len() {
                let mut removed = lines.clone();
                removed.remove(index);
                assert!(verify(&removed).is_err(), "without line {index}");
                let mut swapped = lines.clone();
                swapped.swap(index, (index + 1) % lines.len());
                assert!(verify(&swapped).is_err(), "line {index} swapped");
                for (old, new) in [("user:1", "user:2"), ("\"last\":", "\"last\":1"), ("1970", "1971")] {
                    let mut changed = lines.clone();
                    changed[index] = changed[index].replacen(old, new, 1);
                    assert!(changed == lines || verify(&changed).is_err(), "{}", changed[index]);
                }
            }
        }
        assert!(matches!(verify_export(&b""[..], None), Err(ExportError::Unsigned)));
        assert!(matches!(verify(&["{}".to_owned()]), Err(ExportError::InvalidLine(1))));
        let newer = export(1, 0).join("\n").replace("\"export\":1", "\"export\":2");
        assert!(matches!(verify_export(newer.as_bytes(), None), Err(ExportError::TooNew)));
    }

    #[test]
    fn entries_of_a_segment_cannot_be_removed() {
        let mut lines = export(1, 2);
        let mut footer: ExportFooter = serde_json::from_str(lines.last().unwrap()).unwrap();
        footer.missing_segments = Vec::new();
        footer.signature = hex(&signer().sign_text(&footer.signing_text()));
        *lines.last_mut().unwrap() = serde_json::to_string(&footer).unwrap();
        assert!(matches!(verify(&lines), Err(ExportError::EntriesRemoved)));
    }

    #[test]
    fn a_chain_that_was_computed_again_is_not_signed() {
        let mut lines = export(1, 0);
        let mut head = ChainHead::start(ADA);
        for line in &mut lines[..5] {
            let row = head.append(AuditEntry::new(Timestamp::UNIX_EPOCH, "user:2", "call.intent"));
            *line = serde_json::to_string(&SegmentEntry::try_from(row).unwrap()).unwrap();
        }
        assert!(matches!(verify(&lines), Err(ExportError::Damaged(_))));
    }
}
