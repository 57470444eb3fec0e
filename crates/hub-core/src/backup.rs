//! Backup format: one file of JSON lines with a header, the records of the store, and a footer with a digest of all
//! previous lines, signed with the audit key. The format does not depend on the database. Secrets stay encrypted.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audit::{Signer, is_signed};
use crate::digest::{Digest, Digesting};
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::store::{Copied, Kind, What};
use crate::text::{hex, unhex};
use crate::vault::KeyFile;
use crate::vault::key_ring;

/// Format version. It is increased when older hubs cannot read the format any more.
const VERSION: u32 = 1;
/// Maximum length of a line: a call may have long arguments and a long result.
const LONGEST: u64 = 256 << 20;

/// Marker that distinguishes a backup from other files.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Backup,
}

/// First line of a backup.
#[derive(Serialize, Deserialize)]
struct Header {
    linchpin: Mark,
    version: u32,
    /// Time at which the backup was started.
    at: Timestamp,
    /// Public audit key. It verifies the footer and identifies the key file of the hub.
    audit_key: String,
    /// Key file, if it was requested.
    keys: Option<String>,
}

/// Part of the header that is the same in every format version.
#[derive(Deserialize)]
struct Begun {
    #[serde(rename = "linchpin")]
    _mark: Mark,
    version: u32,
}

/// Last line of a backup.
#[derive(Serialize, Deserialize)]
struct End {
    records: u64,
    digest: Digest,
    signature: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Kept(Copied),
    End(End),
}

/// Summary of a backup.
#[derive(Debug, Clone, Serialize)]
pub struct Contents {
    /// Time at which the backup was started.
    pub at: Timestamp,
    /// Number of records.
    pub records: u64,
    /// Digest of all lines before the footer.
    pub digest: Digest,
    /// Whether the backup contains the key file.
    pub with_keys: bool,
    /// Number of the last audit entry of each tenant.
    #[serde(skip)]
    pub heads: BTreeMap<TenantId, u64>,
}

/// Writer of a backup.
pub struct Writer<'a, W> {
    to: W,
    keys: &'a KeyFile,
    digest: Digesting,
    contents: Contents,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the header. If the backup contains the key file, its holder can decrypt every secret in it.
    pub fn new(to: W, keys: &'a KeyFile, at: Timestamp, with_keys: bool) -> Result<Self> {
        let contents =
            Contents { at, records: 0, digest: digesting().end(), with_keys, heads: BTreeMap::new() };
        let mut writer = Writer { to, keys, digest: digesting(), contents };
        let header = Header {
            linchpin: Mark::Backup,
            version: VERSION,
            at,
            audit_key: audit_key(keys),
            keys: with_keys.then(|| keys.text().to_string()),
        };
        writer.line(&header)?;
        Ok(writer)
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| unwritten(&error.into()))?;
        text.push(b'\n');
        self.digest.add(&text);
        self.to.write_all(&text).map_err(|error| unwritten(&error))
    }

    /// Adds a record. Sessions, login links, leases and the store id are skipped: they belong to a running hub or to
    /// this database.
    pub fn add(&mut self, copied: Copied) -> Result<()> {
        let is_left_out = |kind| matches!(kind, Kind::Session | Kind::Link | Kind::Lease | Kind::StoreId);
        if matches!(&copied.what, What::Document(one) if is_left_out(one.document.key.kind)) {
            return Ok(());
        }
        self.contents.take(&copied, self.keys)?;
        self.line(&Line::Kept(copied))
    }

    /// Returns the number of records so far.
    pub fn records(&self) -> u64 {
        self.contents.records
    }

    /// Writes the signed footer.
    pub fn end(mut self) -> Result<(W, Contents)> {
        let (records, digest) = (self.contents.records, self.digest.clone().end());
        let signature = hex(&Signer::new(&self.keys.audit).sign_text(&signed(records, digest)));
        self.line(&Line::End(End { records, digest, signature }))?;
        self.to.flush().map_err(|error| unwritten(&error))?;
        self.contents.digest = digest;
        Ok((self.to, self.contents))
    }
}

impl Contents {
    /// Counts a record. Fails if the key file does not open a tenant key.
    fn take(&mut self, copied: &Copied, file: &KeyFile) -> Result<()> {
        self.records += 1;
        match &copied.what {
            What::Document(one) if one.document.key.kind == Kind::TenantKey => {
                key_ring::opens(file, copied.tenant, one.clone())?;
            }
            What::Entry(row) => drop(self.heads.insert(copied.tenant, row.number)),
            _ => {}
        }
        Ok(())
    }
}

/// Reader of the lines of a backup.
struct Lines<R> {
    from: R,
    line: Vec<u8>,
    /// Number of the current line, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<()> {
        self.line.clear();
        self.number += 1;
        let read = self.from.by_ref().take(LONGEST).read_until(b'\n', &mut self.line);
        read.map_err(|error| wrong("backup_unreadable", format!("the backup cannot be read: {error}")))?;
        if self.line.ends_with(b"\n") {
            return Ok(());
        }
        let text = format!("the backup is cut off at line {}: use another copy", self.number);
        Err(wrong("backup_cut_off", text))
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.line).map_err(|_| self.changed())
    }

    fn changed(&self) -> Error {
        let text = format!("the backup is damaged at line {}: use another copy", self.number);
        wrong("backup_changed", text)
    }
}

/// Reader of a backup.
pub struct Reader<R> {
    lines: Lines<R>,
    digest: Digesting,
    header: Header,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    pub fn new(from: R) -> Result<Self> {
        let mut lines = Lines { from, line: Vec::new(), number: 0 };
        let foreign = |_| {
            let text = "not a backup: use a file written by `linchpin backup`";
            wrong("not_a_backup", text)
        };
        lines.next().map_err(foreign)?;
        // The rest of the header may have another format.
        let Begun { version, .. } = lines.read().map_err(foreign)?;
        if version > VERSION {
            return Err(wrong(
                "backup_too_new",
                "the backup was written by a newer hub: restore it with that version",
            ));
        }
        let header = lines.read()?;
        Ok(Reader { digest: digesting().part(&lines.line), lines, header })
    }

    /// Returns the key file, if the backup contains it.
    pub fn keys(&self) -> Option<&str> {
        self.header.keys.as_deref()
    }

    /// Returns the next record, or `None` after a valid footer signed with these keys.
    pub fn next(&mut self, keys: &KeyFile) -> Result<Option<Copied>> {
        self.lines.next()?;
        let end = match self.lines.read()? {
            Line::Kept(copied) => {
                self.digest.add(&self.lines.line);
                return Ok(Some(copied));
            }
            Line::End(end) => end,
        };
        if self.digest.clone().end() != end.digest {
            let text = "the backup is damaged: its digest does not match. Use another copy";
            return Err(wrong("backup_changed", text));
        }
        let (signer, signature) = (Signer::new(&keys.audit), unhex(&end.signature).unwrap_or_default());
        if !is_signed(signer.public_key(), &signed(end.records, end.digest), &signature) {
            return Err(self.lines.changed());
        }
        let is_end = self.lines.from.fill_buf().is_ok_and(<[u8]>::is_empty);
        is_end.then_some(None).ok_or_else(|| self.lines.changed())
    }

    /// Verifies the complete backup against these keys. The callback receives the number of bytes read so far.
    pub fn check(mut self, keys: &KeyFile, mut told: impl FnMut(u64)) -> Result<Contents> {
        if self.header.audit_key != audit_key(keys) {
            let text = "the backup belongs to a hub with another key file: use that key file";
            return Err(wrong("wrong_key_file", text));
        }
        let (at, with_keys) = (self.header.at, self.header.keys.is_some());
        let mut contents =
            Contents { at, records: 0, digest: digesting().end(), with_keys, heads: BTreeMap::new() };
        let mut bytes = 0;
        while let Some(copied) = self.next(keys)? {
            contents.take(&copied, keys)?;
            bytes += self.lines.line.len() as u64;
            told(bytes);
        }
        let Line::End(End { records, digest, .. }) = self.lines.read()? else {
            return Err(self.lines.changed());
        };
        contents.digest = digest;
        (records == contents.records).then_some(contents).ok_or_else(|| self.lines.changed())
    }
}

fn audit_key(keys: &KeyFile) -> String {
    hex(Signer::new(&keys.audit).public_key())
}

fn digesting() -> Digesting {
    Digest::of("linchpin backup")
}

fn signed(records: u64, digest: Digest) -> Vec<u8> {
    format!("linchpin backup 1|{records}|{digest}").into_bytes()
}

fn wrong(code: &'static str, text: impl Into<String>) -> Error {
    Error::new(error::Kind::Invalid, code, text)
}

fn unwritten(error: &io::Error) -> Error {
    Error::new(
        error::Kind::Unavailable,
        "backup_unwritable",
        format!("the backup cannot be written: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::System;
    use crate::store::{Document, Key, Stored};

    #[test]
    fn what_lets_somebody_in_at_a_hub_that_runs_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, _) = KeyFile::open(&folder.path().join("keys"), &System).unwrap();
        let mut writer = Writer::new(Vec::new(), &keys, Timestamp::UNIX_EPOCH, false).unwrap();
        for kind in [Kind::Session, Kind::Link, Kind::Lease, Kind::StoreId, Kind::User] {
            let document = Document::new(Key::new(kind, "1"), &()).unwrap();
            let what = What::Document(Stored { document, version: 1 });
            writer.add(Copied { tenant: TenantId::fixed(1), what }).unwrap();
        }
        let (bytes, contents) = writer.end().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!((contents.records, text.contains(r#""kind":"user""#)), (1, true), "{text}");
    }
}
