//! Signed chain heads of the audit, in a file beside the keys. A user with write access to the data directory can
//! recompute the chain, remove checkpoints and restore an older copy, but cannot change this file.
//!
//! Each line is a JSON object; for each location and tenant the last signed line applies. The file is written after the
//! entries are in the store, so that it never names entries that a killed hub has lost.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditSigner, ChainHead, is_signed};
use crate::error::{self, Error, Result};
use crate::id::TenantId;
use crate::platform::Platform;
use crate::private_file;

/// Size from which the head file is rewritten with only the last line for each location and tenant.
const MAX_BYTES: u64 = 256 << 10;

/// Location of the file of signed audit heads, and of the store whose heads this hub signs.
#[derive(Debug, Clone)]
pub struct HeadFile {
    /// Path of the file of signed heads.
    pub path: PathBuf,
    /// Location of the store: the data directory, or host, port and name of the database.
    pub location: String,
    /// Whether the head file is in the data directory, where it protects less. Then a copy of the directory contains a
    /// copy of it.
    pub is_in_data_dir: bool,
}

/// Signed record of the last audit entry of a store, which reveals that a store was replaced by an older copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// Id of the store that contains the audit.
    pub store: String,
    /// Location of the store that contains the audit: the data directory, or host, port and name of the database.
    #[serde(rename = "place")]
    pub location: String,
    /// Tenant whose audit chain head is signed.
    pub tenant: TenantId,
    /// Number and hash of the last audit entry.
    pub head: ChainHead,
    /// Time at which the chain head was signed.
    pub at: Timestamp,
    /// Number of the entry from which on all entries have authentication codes. All documents have one then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes_from: Option<u64>,
    #[serde(with = "crate::store::bytes")]
    signature: Vec<u8>,
}

impl SignedHead {
    fn signing_text(&self) -> Vec<u8> {
        let SignedHead { store, location, tenant, head, at, codes_from, signature: _ } = self;
        let (version, codes) = codes_from.map_or((1, String::new()), |number| (2, format!("{number}|")));
        // The location comes last, since it may contain any character.
        format!(
            "linchpin head {version}|{store}|{tenant}|{}|{}|{at}|{codes}{location}",
            head.number, head.hash
        )
        .into_bytes()
    }

    fn is_signed_by(&self, public_key: &[u8]) -> bool {
        is_signed(public_key, &self.signing_text(), &self.signature)
    }
}

impl HeadFile {
    /// Signs the audit chain head of a tenant for the head file. `codes_from` is the number of the entry from
    /// which on all entries have authentication codes.
    pub fn sign(
        &self,
        signer: &AuditSigner,
        store: &str,
        tenant: TenantId,
        head: ChainHead,
        (at, codes_from): (Timestamp, Option<u64>),
    ) -> SignedHead {
        let (store, location) = (store.to_owned(), self.location.clone());
        let signature = Vec::new();
        let mut line = SignedHead { store, location, tenant, head, at, codes_from, signature };
        line.signature = signer.sign_text(&line.signing_text());
        line
    }

    /// Returns the signed head of a tenant: the last one of this location or, if the store was moved here, the last one
    /// of this store.
    pub fn find(
        &self,
        store: Option<&str>,
        tenant: TenantId,
        public_key: &[u8],
    ) -> Result<Option<SignedHead>> {
        let lines = self.read_lines().map_err(|error| {
            let text = format!("the signed audit heads in `{}` cannot be read: {error}", self.path.display());
            Error::new(error::ErrorKind::Unavailable, "heads_unreadable", text)
        })?;
        let last = |predicate: &dyn Fn(&SignedHead) -> bool| {
            let mut found = lines.iter().rev().filter(|one| one.tenant == tenant && predicate(one));
            found.find(|one| one.is_signed_by(public_key)).cloned()
        };
        let at_location = last(&|one| one.location == self.location);
        Ok(at_location.or_else(|| last(&|one| Some(&*one.store) == store)))
    }

    /// Reads all signed heads of the file. A line that was cut off by a full disk is skipped.
    fn read_lines(&self) -> io::Result<Vec<SignedHead>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        private_file::check_private(&fs::metadata(&self.path)?).map_err(io::Error::other)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Appends a line without `fsync`: a head lost in a power failure leaves an older one, which raises no false alarm.
    pub fn append(&self, signed: &SignedHead, platform: &dyn Platform) -> io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|found| found.len() > MAX_BYTES) {
            self.compact(platform)?;
        }
        private_file::create_private_folder(private_file::parent_folder(&self.path))?;
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // A line feed first, so that the line does not continue one that was cut off.
        let line = format!("\n{}\n", serde_json::to_string(signed)?);
        options.open(&self.path)?.write_all(line.as_bytes())
    }

    /// Rewrites the head file with only the last line for each location and tenant.
    fn compact(&self, platform: &dyn Platform) -> io::Result<()> {
        let mut last = BTreeMap::new();
        for (index, line) in self.read_lines()?.into_iter().enumerate() {
            last.insert((line.location.clone(), line.tenant), (index, line));
        }
        let mut lines: Vec<_> = last.into_values().collect();
        lines.sort_by_key(|(index, _)| *index);
        let lines: Result<Vec<_>, _> = lines.iter().map(|(_, line)| serde_json::to_string(line)).collect();
        private_file::write(&self.path, (lines?.join("\n") + "\n").as_bytes(), platform)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;

    const ADA: TenantId = TenantId::from_u128(1);

    fn head(number: u64) -> ChainHead {
        ChainHead { number, ..ChainHead::start(ADA) }
    }

    #[test]
    fn the_last_signed_line_of_a_place_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |place: &str| HeadFile {
            path: folder.path().join("heads"),
            location: place.into(),
            is_in_data_dir: false,
        };
        let (heads, signer, at) = (file("/here"), AuditSigner::new(&[7; 32]), Timestamp::UNIX_EPOCH);
        let find = |file: &HeadFile, store| {
            let found = file.find(Some(store), ADA, signer.public_key()).unwrap();
            found.map(|found| (found.store, found.head.number))
        };
        assert_eq!(find(&heads, "a"), None);
        for number in [5, 9, 7] {
            heads.append(&heads.sign(&signer, "a", ADA, head(number), (at, None)), &SystemPlatform).unwrap();
        }
        // Lines of another key, of another tenant, changed, and cut off.
        heads
            .append(&heads.sign(&AuditSigner::new(&[8; 32]), "a", ADA, head(20), (at, None)), &SystemPlatform)
            .unwrap();
        heads
            .append(&heads.sign(&signer, "a", TenantId::from_u128(2), head(21), (at, None)), &SystemPlatform)
            .unwrap();
        let changed =
            SignedHead { location: "/else".into(), ..heads.sign(&signer, "b", ADA, head(22), (at, None)) };
        heads.append(&changed, &SystemPlatform).unwrap();
        let mut text = fs::read_to_string(&heads.path).unwrap();
        assert!(text.contains(r#""place":""#), "the format stays: {text}");
        text.push_str("\n{\"store\":");
        fs::write(&heads.path, &text).unwrap();
        heads.append(&heads.sign(&signer, "a", ADA, head(8), (at, Some(8))), &SystemPlatform).unwrap();
        assert_eq!(find(&heads, "a"), Some(("a".into(), 8)), "a restore may go back");
        assert_eq!(find(&heads, "b"), Some(("a".into(), 8)), "another store at this location");
        assert_eq!(find(&file("/there"), "a"), Some(("a".into(), 8)), "the store was moved");
        assert_eq!(find(&file("/there"), "b"), None);
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let heads = HeadFile {
            path: folder.path().join("heads"),
            location: "x".repeat(10_000),
            is_in_data_dir: false,
        };
        let other = HeadFile { location: "there".into(), ..heads.clone() };
        let (signer, at) = (AuditSigner::new(&[7; 32]), Timestamp::UNIX_EPOCH);
        other.append(&other.sign(&signer, "b", ADA, head(3), (at, None)), &SystemPlatform).unwrap();
        for number in 1..100 {
            heads.append(&heads.sign(&signer, "a", ADA, head(number), (at, None)), &SystemPlatform).unwrap();
        }
        assert!(fs::metadata(&heads.path).unwrap().len() < MAX_BYTES + 20_000);
        let find = |file: &HeadFile| file.find(None, ADA, signer.public_key()).unwrap().unwrap().head.number;
        assert_eq!((find(&heads), find(&other)), (99, 3));
    }
}
