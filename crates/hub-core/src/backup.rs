//! Backup format: one file of JSON lines with a header, the records of the store, and a footer with a digest of all
//! previous lines, signed with the audit key. The format does not depend on the database. Secrets stay encrypted.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditSigner, is_signed};
use crate::digest::{Digest, DigestBuilder};
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::store::{DocumentKind, SnapshotItem, SnapshotValue};
use crate::text::{hex, unhex};
use crate::vault::KeyFile;
use crate::vault::key_ring;

/// Version of the backup format. It is increased when older hubs cannot read the format any more.
const FORMAT_VERSION: u32 = 1;
/// Maximum length of a line of a backup: a call may have long arguments and a long result.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// Field of the backup header with a fixed value, which distinguishes a backup from other files.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileMarker {
    Backup,
}

/// First line of a backup: format version, time, audit key and, if requested, the key file.
#[derive(Serialize, Deserialize)]
struct Header {
    linchpin: FileMarker,
    version: u32,
    /// Time at which the backup was started.
    at: Timestamp,
    /// Public key that verifies the audit signatures. It verifies the footer and identifies the key file of the hub.
    audit_key: String,
    /// Text of the key file, if the backup was requested to contain it.
    keys: Option<String>,
}

/// Part of the backup header that is the same in every format version.
#[derive(Deserialize)]
struct HeaderPrefix {
    #[serde(rename = "linchpin")]
    _marker: FileMarker,
    version: u32,
}

/// Last line of a backup: number of records, digest and signature.
#[derive(Serialize, Deserialize)]
struct Footer {
    records: u64,
    digest: Digest,
    signature: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BackupLine {
    #[serde(rename = "kept")]
    Item(SnapshotItem),
    #[serde(rename = "end")]
    Footer(Footer),
}

/// Summary of a backup file: what it contains, and its digest.
#[derive(Debug, Clone, Serialize)]
pub struct BackupSummary {
    /// Time at which the backup was started.
    pub at: Timestamp,
    /// Number of store records in the backup.
    pub records: u64,
    /// Digest of all lines of the backup before the footer.
    pub digest: Digest,
    /// Whether the backup contains the key file.
    pub with_keys: bool,
    /// Number of the last audit entry of each tenant.
    #[serde(skip)]
    pub heads: BTreeMap<TenantId, u64>,
}

/// Writer of a backup file: header, records of the store, signed footer.
pub struct BackupWriter<'a, W> {
    output: W,
    keys: &'a KeyFile,
    digest: DigestBuilder,
    contents: BackupSummary,
}

impl<'a, W: Write> BackupWriter<'a, W> {
    /// Creates a backup writer and writes the header. If the backup contains the key file, its holder can decrypt every
    /// secret in it.
    pub fn new(to: W, keys: &'a KeyFile, at: Timestamp, with_keys: bool) -> Result<Self> {
        let contents = BackupSummary {
            at,
            records: 0,
            digest: new_digest().finish(),
            with_keys,
            heads: BTreeMap::new(),
        };
        let mut writer = BackupWriter { output: to, keys, digest: new_digest(), contents };
        let header = Header {
            linchpin: FileMarker::Backup,
            version: FORMAT_VERSION,
            at,
            audit_key: audit_key(keys),
            keys: with_keys.then(|| keys.text().to_string()),
        };
        writer.write_line(&header)?;
        Ok(writer)
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| write_error(&error.into()))?;
        text.push(b'\n');
        self.digest.add(&text);
        self.output.write_all(&text).map_err(|error| write_error(&error))
    }

    /// Adds a record of the store to the backup. Sessions, login links, leases and the store id are skipped: they
    /// belong to a running hub or to this database.
    pub fn add(&mut self, copied: SnapshotItem) -> Result<()> {
        let is_left_out = |kind| {
            matches!(
                kind,
                DocumentKind::Session | DocumentKind::Link | DocumentKind::Lease | DocumentKind::StoreId
            )
        };
        if matches!(&copied.value, SnapshotValue::Document(one) if is_left_out(one.document.key.kind)) {
            return Ok(());
        }
        self.contents.add(&copied, self.keys)?;
        self.write_line(&BackupLine::Item(copied))
    }

    /// Returns the number of records written to the backup so far.
    pub fn records(&self) -> u64 {
        self.contents.records
    }

    /// Writes the signed footer that ends the backup.
    pub fn finish(mut self) -> Result<(W, BackupSummary)> {
        let (records, digest) = (self.contents.records, self.digest.clone().finish());
        let signature = hex(&AuditSigner::new(&self.keys.audit).sign_text(&signing_text(records, digest)));
        self.write_line(&BackupLine::Footer(Footer { records, digest, signature }))?;
        self.output.flush().map_err(|error| write_error(&error))?;
        self.contents.digest = digest;
        Ok((self.output, self.contents))
    }
}

impl BackupSummary {
    /// Counts a record of the backup in the summary. Fails if the key file does not open a tenant key.
    fn add(&mut self, copied: &SnapshotItem, file: &KeyFile) -> Result<()> {
        self.records += 1;
        match &copied.value {
            SnapshotValue::Document(one) if one.document.key.kind == DocumentKind::TenantKey => {
                key_ring::verify_opens(file, copied.tenant, one.clone())?;
            }
            SnapshotValue::Entry(row) => drop(self.heads.insert(copied.tenant, row.number)),
            _ => {}
        }
        Ok(())
    }
}

/// Reader of the lines of a backup file, which limits their length.
struct LineReader<R> {
    input: R,
    line: Vec<u8>,
    /// Number of the current line of the backup, from 1.
    number: u64,
}

impl<R: BufRead> LineReader<R> {
    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        self.number += 1;
        let read = self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
        read.map_err(|error| {
            invalid_backup("backup_unreadable", format!("the backup cannot be read: {error}"))
        })?;
        if self.line.ends_with(b"\n") {
            return Ok(());
        }
        let text = format!("the backup is cut off at line {}: use another copy", self.number);
        Err(invalid_backup("backup_truncated", text))
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.line).map_err(|_| self.damaged_error())
    }

    fn damaged_error(&self) -> Error {
        let text = format!("the backup is damaged at line {}: use another copy", self.number);
        invalid_backup("backup_corrupt", text)
    }
}

/// Reader of a backup file, which verifies its digest and signature.
pub struct BackupReader<R> {
    lines: LineReader<R>,
    digest: DigestBuilder,
    header: Header,
}

impl<R: BufRead> BackupReader<R> {
    /// Creates a reader of a backup and reads its header.
    pub fn new(from: R) -> Result<Self> {
        let mut lines = LineReader { input: from, line: Vec::new(), number: 0 };
        let foreign = |_| {
            let text = "not a backup: use a file written by `linchpin backup`";
            invalid_backup("not_a_backup", text)
        };
        lines.read_line().map_err(foreign)?;
        // The rest of the header may have another format.
        let HeaderPrefix { version, .. } = lines.parse().map_err(foreign)?;
        if version > FORMAT_VERSION {
            return Err(invalid_backup(
                "backup_too_new",
                "the backup was written by a newer hub: restore it with that version",
            ));
        }
        let header = lines.parse()?;
        Ok(BackupReader { digest: new_digest().part(&lines.line), lines, header })
    }

    /// Returns the text of the key file, if the backup contains it.
    pub fn keys(&self) -> Option<&str> {
        self.header.keys.as_deref()
    }

    /// Returns the next record of the backup, or `None` after a valid footer signed with these keys.
    pub fn next(&mut self, keys: &KeyFile) -> Result<Option<SnapshotItem>> {
        self.lines.read_line()?;
        let end = match self.lines.parse()? {
            BackupLine::Item(copied) => {
                self.digest.add(&self.lines.line);
                return Ok(Some(copied));
            }
            BackupLine::Footer(end) => end,
        };
        if self.digest.clone().finish() != end.digest {
            let text = "the backup is damaged: its digest does not match. Use another copy";
            return Err(invalid_backup("backup_corrupt", text));
        }
        let (signer, signature) = (AuditSigner::new(&keys.audit), unhex(&end.signature).unwrap_or_default());
        if !is_signed(signer.public_key(), &signing_text(end.records, end.digest), &signature) {
            return Err(self.lines.damaged_error());
        }
        let is_end = self.lines.input.fill_buf().is_ok_and(<[u8]>::is_empty);
        is_end.then_some(None).ok_or_else(|| self.lines.damaged_error())
    }

    /// Verifies the complete backup against these keys. The callback receives the number of bytes read so far.
    pub fn verify(mut self, keys: &KeyFile, mut on_progress: impl FnMut(u64)) -> Result<BackupSummary> {
        if self.header.audit_key != audit_key(keys) {
            let text = "the backup belongs to a hub with another key file: use that key file";
            return Err(invalid_backup("wrong_key_file", text));
        }
        let (at, with_keys) = (self.header.at, self.header.keys.is_some());
        let mut contents = BackupSummary {
            at,
            records: 0,
            digest: new_digest().finish(),
            with_keys,
            heads: BTreeMap::new(),
        };
        let mut bytes = 0;
        while let Some(copied) = self.next(keys)? {
            contents.add(&copied, keys)?;
            bytes += self.lines.line.len() as u64;
            on_progress(bytes);
        }
        let BackupLine::Footer(Footer { records, digest, .. }) = self.lines.parse()? else {
            return Err(self.lines.damaged_error());
        };
        contents.digest = digest;
        (records == contents.records).then_some(contents).ok_or_else(|| self.lines.damaged_error())
    }
}

fn audit_key(keys: &KeyFile) -> String {
    hex(AuditSigner::new(&keys.audit).public_key())
}

fn new_digest() -> DigestBuilder {
    Digest::of("linchpin backup")
}

fn signing_text(records: u64, digest: Digest) -> Vec<u8> {
    format!("linchpin backup 1|{records}|{digest}").into_bytes()
}

fn invalid_backup(code: &'static str, text: impl Into<String>) -> Error {
    Error::new(error::ErrorKind::Invalid, code, text)
}

fn write_error(error: &io::Error) -> Error {
    Error::new(
        error::ErrorKind::Unavailable,
        "backup_unwritable",
        format!("the backup cannot be written: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;
    use crate::store::{Document, DocumentKey, StoredDocument};

    #[test]
    fn what_lets_somebody_in_at_a_hub_that_runs_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, _) = KeyFile::open(&folder.path().join("keys"), &SystemPlatform).unwrap();
        let mut writer = BackupWriter::new(Vec::new(), &keys, Timestamp::UNIX_EPOCH, false).unwrap();
        for kind in [
            DocumentKind::Session,
            DocumentKind::Link,
            DocumentKind::Lease,
            DocumentKind::StoreId,
            DocumentKind::User,
        ] {
            let document = Document::new(DocumentKey::new(kind, "1"), &()).unwrap();
            let value = SnapshotValue::Document(StoredDocument { document, version: 1 });
            writer.add(SnapshotItem { tenant: TenantId::from_u128(1), value }).unwrap();
        }
        let (bytes, contents) = writer.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!((contents.records, text.contains(r#""kind":"user""#)), (1, true), "{text}");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(
            lines[1]["kept"]["what"].is_object() && lines[2]["end"].is_object(),
            "the format stays: {text}"
        );
    }
}
