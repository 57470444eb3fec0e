//! What was decided and done, as a chain: each entry holds the digest of the one before it, so that none can be changed,
//! left out or put elsewhere. Signed checkpoints say how far the chain once went, so that its end cannot be cut off.
//!
//! An entry holds digests and decisions; arguments and results are in the history of calls.

use jiff::Timestamp;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::id::TenantId;
use crate::pin::visible;

/// The longest text in an entry.
const LONGEST: usize = 1_000;

/// What is to be remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// Who: a subject, or the hub itself.
    pub actor: String,
    /// What was done, such as `call.intent`.
    pub action: &'static str,
    /// The rest, by name.
    pub fields: Map<String, Value>,
}

impl Entry {
    /// An entry without fields.
    pub fn new(at: Timestamp, actor: &str, action: &'static str) -> Self {
        Entry { at, actor: actor.to_owned(), action, fields: Map::new() }
    }

    /// Adds a field. A text of others is made harmless: one line, nothing hidden, not too long.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(harmless(&text)),
            other => other,
        };
        self.fields.insert(name.to_owned(), value);
        self
    }
}

fn harmless(text: &str) -> String {
    let mut text = visible(text).replace('\n', "\\n");
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// From one on, without a gap.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// The rest, as JSON: the digest is of this text, whatever it says.
    pub fields: String,
    /// The digest of this entry and all before it.
    pub hash: Digest,
}

/// Where a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last entry; zero before the first.
    pub number: u64,
    /// Its digest.
    pub hash: Digest,
}

impl Head {
    /// Before the first entry of a tenant.
    pub fn start(tenant: TenantId) -> Self {
        Head { number: 0, hash: Digest::of("linchpin audit").part(tenant.to_string()).end() }
    }

    /// Adds an entry.
    pub fn append(&mut self, entry: Entry) -> Row {
        let Entry { at, actor, action, fields } = entry;
        let mut row = Row {
            number: self.number + 1,
            at,
            actor,
            action: action.into(),
            fields: Value::from(fields).to_string(),
            hash: self.hash,
        };
        row.hash = self.after(&row);
        *self = Head { number: row.number, hash: row.hash };
        row
    }

    /// The digest of a row that comes next.
    fn after(&self, row: &Row) -> Digest {
        Digest::of("linchpin audit entry")
            .part(self.hash.bytes())
            .part(row.number.to_string())
            .part(row.at.to_string())
            .part(&row.actor)
            .part(&row.action)
            .part(&row.fields)
            .end()
    }

    /// Checks that a row comes next, and goes on to it.
    pub fn check(&mut self, row: &Row) -> Result<(), Broken> {
        if row.number != self.number + 1 {
            return Err(Broken::new(self.number + 1, "it is missing, or not in its place"));
        }
        if self.after(row) != row.hash {
            return Err(Broken::new(row.number, "it, or what came before it, was changed"));
        }
        *self = Head { number: row.number, hash: row.hash };
        Ok(())
    }
}

/// What happened to an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// An entry or the file of a segment was changed, or is missing.
    EntryChanged,
    /// The chain fits together, but is not the one that was signed.
    Rewritten,
    /// Entries are missing that a checkpoint in the data directory names.
    EndMissing,
    /// There are entries, and no signed checkpoint.
    NoCheckpoint,
    /// The history ends before the signed head, and nothing in the data directory names more.
    OlderCopy,
    /// There are no entries, and the signed head names some.
    AllRemoved,
    /// The signed head is of another database.
    OtherStore,
}

/// Where a chain is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} of the audit is not as it was written: {what}")]
pub struct Broken {
    /// The entry.
    pub number: u64,
    /// What happened to it.
    pub kind: Damage,
    /// What is wrong.
    pub what: &'static str,
}

impl Broken {
    /// An entry that was changed, or is missing.
    pub(crate) fn new(number: u64, what: &'static str) -> Self {
        Broken { number, kind: Damage::EntryChanged, what }
    }
}

/// Signs how far a chain goes.
pub struct Signer(Ed25519KeyPair);

/// How far a chain once went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Whose chain.
    pub tenant: TenantId,
    /// Where it ended.
    pub head: Head,
    /// When.
    pub at: Timestamp,
    /// Who says so.
    #[serde(with = "crate::store::bytes")]
    pub signature: Vec<u8>,
}

impl Signer {
    /// The one with this seed.
    pub fn new(seed: &[u8; 32]) -> Self {
        Signer(Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes"))
    }

    /// What others check signatures with.
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Signs where a chain ends now.
    pub fn sign(&self, tenant: TenantId, head: Head, at: Timestamp) -> Checkpoint {
        let signature = self.sign_text(&signed(tenant, head, at));
        Checkpoint { tenant, head, at, signature }
    }

    pub(crate) fn sign_text(&self, text: &[u8]) -> Vec<u8> {
        self.0.sign(text).as_ref().to_vec()
    }
}

/// Whether whoever has this key signed a text.
pub(crate) fn is_signed(public_key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(text, signature).is_ok()
}

impl Checkpoint {
    /// Whether whoever has this key signed it.
    pub fn is_signed_by(&self, public_key: &[u8]) -> bool {
        is_signed(public_key, &signed(self.tenant, self.head, self.at), &self.signature)
    }
}

fn signed(tenant: TenantId, head: Head, at: Timestamp) -> Vec<u8> {
    format!("linchpin checkpoint 1|{tenant}|{}|{}|{at}", head.number, head.hash).into_bytes()
}

/// Checks a whole chain, row by row.
#[derive(Debug, Clone)]
pub struct Check {
    head: Head,
    /// Signed heads whose rows have not come yet.
    expected: Vec<Head>,
}

impl Check {
    /// Begins at the first row. The chain must contain these heads, whose signatures the caller has checked.
    pub fn new(tenant: TenantId, signed: impl IntoIterator<Item = Head>) -> Self {
        let expected = signed.into_iter().filter(|head| head.number > 0).collect();
        Check { head: Head::start(tenant), expected }
    }

    /// The next row.
    pub fn row(&mut self, row: &Row) -> Result<(), Broken> {
        self.head.check(row)?;
        self.compare()
    }

    /// Goes on after rows that are not at hand, of which somebody has signed where they end.
    pub fn skip(&mut self, head: Head) -> Result<(), Broken> {
        self.head = head;
        self.compare()
    }

    /// Compares the signed heads that have been reached. One within rows that are not at hand cannot be compared.
    fn compare(&mut self) -> Result<(), Broken> {
        let head = self.head;
        let is_other =
            self.expected.iter().any(|signed| signed.number == head.number && signed.hash != head.hash);
        self.expected.retain(|signed| signed.number > head.number);
        if is_other {
            let what = "the chain fits together, but it is not the one that was signed: entries up to it were rewritten";
            return Err(Broken { number: head.number, kind: Damage::Rewritten, what });
        }
        Ok(())
    }

    /// Where it is now.
    pub fn head(&self) -> Head {
        self.head
    }

    /// There are no more rows. Where the chain ends.
    pub fn end(self) -> Result<Head, Broken> {
        if self.expected.is_empty() {
            return Ok(self.head);
        }
        let what = "the checkpoint says that there was more: the end was cut off";
        Err(Broken { number: self.head.number + 1, kind: Damage::EndMissing, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: TenantId = TenantId::fixed(1);

    fn chain(count: u64) -> (Vec<Row>, Head) {
        let mut head = Head::start(ADA);
        let rows = (0..count).map(|number| {
            let at = Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
            head.append(Entry::new(at, "user:1", "call.intent").with("call", number).with("tool", "echo"))
        });
        (rows.collect(), head)
    }

    fn check(rows: &[Row], checkpoint: Option<&Checkpoint>, key: &[u8]) -> Result<Head, Broken> {
        let mut check = Check::new(ADA, checkpoint.filter(|one| one.is_signed_by(key)).map(|one| one.head));
        rows.iter().try_for_each(|row| check.row(row))?;
        check.end()
    }

    #[test]
    fn whatever_is_done_to_it_is_found() {
        let ((rows, head), signer) = (chain(8), Signer::new(&[7; 32]));
        let checkpoint = signer.sign(ADA, Head { number: 6, hash: rows[5].hash }, Timestamp::UNIX_EPOCH);
        let verify = |rows: &[Row]| check(rows, Some(&checkpoint), signer.public_key());
        assert_eq!(verify(&rows), Ok(head));
        assert_eq!(verify(&rows[..6]).map(|head| head.number), Ok(6), "what came after it is not known");
        for index in 0..rows.len() {
            for change in [
                Row { at: Timestamp::MAX, ..rows[index].clone() },
                Row { actor: "user:2".into(), ..rows[index].clone() },
                Row { action: "call.denied".into(), ..rows[index].clone() },
                Row { fields: rows[index].fields.replace("echo", "other"), ..rows[index].clone() },
                Row { fields: rows[index].fields.replace(':', ": "), ..rows[index].clone() },
                Row { fields: rows[index].fields.replace('{', r#"{"call":0,"#), ..rows[index].clone() },
                Row { hash: Digest::of("x").end(), ..rows[index].clone() },
            ] {
                let mut other = rows.clone();
                other[index] = change;
                assert!(verify(&other).is_err(), "{:?}", other[index]);
            }
            let mut removed = rows.clone();
            removed.remove(index);
            assert_eq!(verify(&removed).is_err(), index < 7, "without {index}");
            let mut swapped = rows.clone();
            swapped.swap(index, (index + 1) % 8);
            assert!(verify(&swapped).is_err());
            if index < 6 {
                let error = verify(&rows[..index]).unwrap_err();
                assert!(error.to_string().ends_with("the end was cut off"), "{error}");
            }
        }
    }

    #[test]
    fn a_chain_that_was_written_anew_does_not_fit_its_checkpoint() {
        let ((rows, _), signer) = (chain(3), Signer::new(&[7; 32]));
        let checkpoint = signer.sign(ADA, Head { number: 3, hash: rows[2].hash }, Timestamp::UNIX_EPOCH);
        let mut head = Head::start(ADA);
        let forged: Vec<_> =
            (0..3).map(|_| head.append(Entry::new(Timestamp::UNIX_EPOCH, "x", "call.intent"))).collect();
        let error = check(&forged, Some(&checkpoint), signer.public_key()).unwrap_err();
        assert_eq!((error.number, error.kind), (3, Damage::Rewritten));
        for forged in [
            Checkpoint { head: Head { number: 2, ..checkpoint.head }, ..checkpoint.clone() },
            Checkpoint { at: Timestamp::MAX, ..checkpoint.clone() },
            Checkpoint { tenant: TenantId::fixed(2), ..checkpoint.clone() },
        ] {
            assert!(!forged.is_signed_by(signer.public_key()), "{forged:?}");
        }
        assert!(!checkpoint.is_signed_by(Signer::new(&[8; 32]).public_key()));
    }

    #[test]
    fn nothing_of_others_can_forge_a_line() {
        let entry = Entry::new(Timestamp::UNIX_EPOCH, "user:1", "x").with("tool", "a\n\u{1b}[2J\u{202e}b");
        assert_eq!(entry.fields["tool"], "a\\n\\u{1b}[2J\\u{202e}b");
        let long = Entry::new(Timestamp::UNIX_EPOCH, "user:1", "x").with("tool", "x".repeat(5_000));
        assert_eq!(long.fields["tool"].as_str().unwrap().chars().count(), 1_001);
    }
}
