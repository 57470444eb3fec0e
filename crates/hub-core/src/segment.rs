//! Old entries of the audit, outside the store: a file of JSON lines whose last line says where it belongs in the chain, signed.
//! The store keeps that line, so that a file that was changed, cut or put in another's place is found.
//!
//! The same entries make the same file, to the byte: whoever was interrupted writes it again, and nothing is there twice.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::audit::{Broken, Head, Row, Signer, is_signed};
use crate::digest::{Digest, Digesting};
use crate::id::TenantId;
use crate::text::{hex, unhex};

/// The longest line of a file. An entry has few fields, of which none is long.
const LONGEST: u64 = 1 << 20;

/// What the last line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Counts the segments of a tenant, from one on.
    pub segment: u64,
    /// Whose they are.
    pub tenant: TenantId,
    /// The number of the first entry.
    pub first: u64,
    /// The number of the last one.
    pub last: u64,
    /// How many there are.
    pub count: u64,
    /// The digest of the entry before the first.
    pub before: Digest,
    /// The digest of the last one.
    pub after: Digest,
    /// The digest of all lines before this one.
    pub digest: Digest,
    /// Who says so.
    signature: String,
}

/// An entry, on a line.
#[derive(Serialize, Deserialize)]
struct Line {
    number: u64,
    at: Timestamp,
    actor: String,
    action: String,
    /// As it is written: the digest is of this text.
    fields: Box<RawValue>,
    hash: Digest,
}

impl Segment {
    /// Where the chain is before the first entry.
    pub fn begins(&self) -> Head {
        Head { number: self.first.saturating_sub(1), hash: self.before }
    }

    /// Where it is after the last one.
    pub fn ends(&self) -> Head {
        Head { number: self.last, hash: self.after }
    }

    /// The name of its file.
    pub fn file(&self) -> String {
        format!("{}{:012}.jsonl", beginning(self.tenant, self.first), self.last)
    }

    /// Whether whoever has this key signed it, and it says nothing that cannot be.
    pub fn is_signed_by(&self, public_key: &[u8]) -> bool {
        let is_sound = self.first > 0 && self.last >= self.first && self.count == self.last - self.first + 1;
        let signature = unhex(&self.signature).unwrap_or_default();
        is_sound && is_signed(public_key, &self.signed(), &signature)
    }

    fn signed(&self) -> Vec<u8> {
        let Segment { segment, tenant, first, last, before, after, digest, .. } = self;
        format!("linchpin segment 1|{tenant}|{segment}|{first}|{last}|{before}|{after}|{digest}").into_bytes()
    }

    /// Reads the file in a folder, entry by entry, and checks that it is this segment's, whole and unchanged. Whether it is
    /// there at all.
    pub fn read<E: From<Broken>>(
        &self,
        folder: &Path,
        mut each: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<bool, E> {
        let broken = Broken::new;
        let unreadable = |_| broken(self.first, "the file of its segment cannot be read");
        let file = match File::open(folder.join(self.file())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file.map_err(unreadable)?,
        };
        let (mut lines, mut head, mut digest) = (BufReader::new(file), self.begins(), digesting());
        let mut line = Vec::new();
        loop {
            line.clear();
            lines.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(unreadable)?;
            if !line.ends_with(b"\n") {
                return Err(broken(head.number + 1, "the file of its segment is cut off").into());
            }
            if head.number == self.last {
                break;
            }
            let Ok(read) = serde_json::from_slice::<Line>(&line) else {
                return Err(broken(head.number + 1, "its line in the file of its segment is no entry").into());
            };
            let row = Row::from(read);
            head.check(&row)?;
            digest.add(&line);
            each(row)?;
        }
        let is_same = serde_json::from_slice::<Segment>(&line).is_ok_and(|last| last == *self);
        if !is_same || digest.end() != self.digest || head != self.ends() {
            return Err(broken(
                self.first,
                "the file of its segment is another than the one that was sealed",
            )
            .into());
        }
        let is_end = lines.fill_buf().map_err(unreadable)?.is_empty();
        is_end
            .then_some(true)
            .ok_or_else(|| broken(self.last, "the file of its segment goes on after its end").into())
    }
}

/// What the names of files begin with that begin with this entry.
fn beginning(tenant: TenantId, first: u64) -> String {
    format!("{tenant}-{first:012}-")
}

/// The last entry of a file that begins with this one, if somebody has begun to seal it.
pub(crate) fn begun(folder: &Path, tenant: TenantId, first: u64) -> Option<u64> {
    let beginning = beginning(tenant, first);
    let last = |name: &str| name.strip_prefix(&*beginning)?.strip_suffix(".jsonl")?.parse().ok();
    std::fs::read_dir(folder).ok()?.flatten().filter_map(|file| last(file.file_name().to_str()?)).min()
}

fn digesting() -> Digesting {
    Digest::of("linchpin segment")
}

/// Gathers entries for a segment.
pub(crate) struct Sealing {
    begins: Head,
    head: Head,
    pub(crate) text: Vec<u8>,
}

impl Sealing {
    /// Begins after this.
    pub(crate) fn new(begins: Head) -> Self {
        Sealing { begins, head: begins, text: Vec::new() }
    }

    /// The entry after the last one so far.
    pub(crate) fn next(&self) -> u64 {
        self.head.number + 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.begins == self.head
    }

    /// Adds an entry, which must be as it was written.
    pub(crate) fn add(&mut self, row: Row) -> Result<(), Broken> {
        self.head.check(&row)?;
        let Row { number, at, actor, action, fields, hash } = row;
        let unfit = |_| Broken::new(number, "what it says is no JSON");
        let fields = RawValue::from_string(fields).map_err(unfit)?;
        let line = Line { number, at, actor, action, fields, hash };
        let mut line = serde_json::to_vec(&line).map_err(unfit)?;
        line.push(b'\n');
        self.text.extend(line);
        Ok(())
    }

    /// Signs it: the segment, and the file that holds it.
    pub(crate) fn seal(
        mut self,
        signer: &Signer,
        tenant: TenantId,
        number: u64,
    ) -> serde_json::Result<(Segment, Vec<u8>)> {
        let mut segment = Segment {
            segment: number,
            tenant,
            first: self.begins.number + 1,
            last: self.head.number,
            count: self.head.number - self.begins.number,
            before: self.begins.hash,
            after: self.head.hash,
            digest: self.text.split_inclusive(|byte| *byte == b'\n').fold(digesting(), Digesting::part).end(),
            signature: String::new(),
        };
        segment.signature = hex(&signer.sign_text(&segment.signed()));
        serde_json::to_writer(&mut self.text, &segment)?;
        self.text.push(b'\n');
        Ok((segment, self.text))
    }
}

impl From<Line> for Row {
    fn from(line: Line) -> Self {
        let Line { number, at, actor, action, fields, hash } = line;
        Row { number, at, actor, action, fields: fields.get().to_owned(), hash }
    }
}
