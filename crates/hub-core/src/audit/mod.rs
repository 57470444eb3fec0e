//! Audit: an append-only chain of entries. Each entry contains the hash of the previous one, so that no entry can be
//! changed, removed or moved unnoticed. Signed checkpoints record chain heads, so that the end cannot be cut off
//! unnoticed.
//!
//! Entries contain digests and decisions; arguments and results are in the call history.

pub mod export;
pub mod head_file;
pub mod segment;

use jiff::Timestamp;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::id::TenantId;
use crate::store::StoreAuthenticator;
use crate::text::escape_invisible;

/// Maximum length of a string field of an audit entry, in characters.
const MAX_FIELD_LEN: usize = 1_000;

/// Audit entry before it is appended to a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Time of the recorded action.
    pub at: Timestamp,
    /// Subject that acted: `user:ID`, `agent:ID` or `hub`.
    pub actor: String,
    /// Action, such as `call.intent`.
    pub action: &'static str,
    /// Further fields of the audit entry, by name.
    pub fields: Map<String, Value>,
}

impl AuditEntry {
    /// Creates an audit entry without fields.
    pub fn new(at: Timestamp, actor: &str, action: &'static str) -> Self {
        AuditEntry { at, actor: actor.to_owned(), action, fields: Map::new() }
    }

    /// Adds a field to the audit entry. Strings are sanitized: one line, no invisible characters, bounded length.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) if is_plain(&text) => Value::String(text),
            Value::String(text) => Value::String(sanitize(&text)),
            other => other,
        };
        self.fields.insert(name.to_owned(), value);
        self
    }
}

/// Returns whether a text needs no sanitizing: short, printable ASCII.
fn is_plain(text: &str) -> bool {
    text.len() <= MAX_FIELD_LEN && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn sanitize(text: &str) -> String {
    let mut text = escape_invisible(text).replace('\n', "\\n");
    if let Some((end, _)) = text.char_indices().nth(MAX_FIELD_LEN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Audit entry as stored in the chain, with its number and hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredAuditEntry {
    /// Number of the entry, from 1 without gaps.
    pub number: u64,
    /// Time of the recorded action.
    pub at: Timestamp,
    /// Subject that acted: `user:ID`, `agent:ID` or `hub`.
    pub actor: String,
    /// Action, such as `call.intent`.
    pub action: String,
    /// Further fields of the audit entry, as JSON. The hash covers this exact text.
    pub fields: String,
    /// Hash over this entry and all entries before it.
    pub hash: Digest,
    /// Authentication code of the entry. Entries of earlier versions and of segments have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Digest>,
}

/// Chain head of an audit: number and hash of its last entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// Number of the last audit entry; 0 before the first.
    pub number: u64,
    /// Hash of the last audit entry.
    pub hash: Digest,
}

impl ChainHead {
    /// Returns the chain head of an empty audit log of a tenant.
    pub fn start(tenant: TenantId) -> Self {
        ChainHead { number: 0, hash: Digest::of("linchpin audit").part(tenant.to_string()).finish() }
    }

    /// Appends an entry to the audit chain and returns it as stored, with its code if there is an authenticator.
    pub fn append_authentic(
        &mut self,
        entry: AuditEntry,
        authenticator: Option<&StoreAuthenticator>,
    ) -> StoredAuditEntry {
        let mut row = self.append(entry);
        row.code = authenticator.map(|authenticator| authenticator.entry_code(&row.hash));
        row
    }

    /// Appends an entry to the audit chain and returns it as stored, without a code.
    pub fn append(&mut self, entry: AuditEntry) -> StoredAuditEntry {
        let AuditEntry { at, actor, action, fields } = entry;
        let mut row = StoredAuditEntry {
            number: self.number + 1,
            at,
            actor,
            action: action.into(),
            fields: Value::from(fields).to_string(),
            hash: self.hash,
            code: None,
        };
        row.hash = self.next_hash(&row);
        *self = ChainHead { number: row.number, hash: row.hash };
        row
    }

    /// Computes the hash of the entry that follows this head.
    fn next_hash(&self, row: &StoredAuditEntry) -> Digest {
        Digest::of("linchpin audit entry")
            .part(self.hash.bytes())
            .part(row.number.to_string())
            .part(row.at.to_string())
            .part(&row.actor)
            .part(&row.action)
            .part(&row.fields)
            .finish()
    }

    /// Verifies that an audit entry follows this chain head, and advances the head to it.
    pub fn verify_next(&mut self, row: &StoredAuditEntry) -> Result<(), ChainError> {
        if row.number != self.number + 1 {
            return Err(ChainError::new(self.number + 1, "the entry is missing or out of order"));
        }
        if self.next_hash(row) != row.hash {
            return Err(ChainError::new(row.number, "the entry or an entry before it was changed"));
        }
        *self = ChainHead { number: row.number, hash: row.hash };
        Ok(())
    }
}

/// Kind of damage that the verification of an audit chain found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// An entry or a segment file was changed or is missing.
    EntryChanged,
    /// The audit chain is consistent, but another program has written it: it is not the signed one.
    Rewritten,
    /// Another program has added entries after the signed head.
    LateEntry,
    /// A hub has continued an older copy of the audit: the signed head is not in this history.
    Forked,
    /// Entries are missing that a checkpoint in the data directory covers.
    EndMissing,
    /// The audit has entries, but no signed checkpoint.
    NoCheckpoint,
    /// The audit chain ends before the signed head, and no checkpoint in the data directory covers later entries.
    OlderCopy,
    /// The audit has no entries, although the signed head names some.
    AllRemoved,
    /// The signed head belongs to another database.
    OtherStore,
    /// A document was added, changed or put back in the database by another program.
    DocumentChanged,
}

/// Error that the verification of an audit chain found, at its first damaged entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} of the audit is damaged: {reason}")]
pub struct ChainError {
    /// Number of the damaged audit entry.
    pub number: u64,
    /// Kind of damage of the audit chain.
    pub kind: Damage,
    /// Description of the damage.
    pub reason: &'static str,
}

impl ChainError {
    /// Creates the error for an audit entry that was changed or is missing.
    pub(crate) fn new(number: u64, reason: &'static str) -> Self {
        ChainError { number, kind: Damage::EntryChanged, reason }
    }
}

/// Keys of the audit: the Ed25519 key that signs chain heads, segments, exports and backups, and the key of the codes of
/// documents and entries.
pub struct AuditSigner {
    key_pair: Ed25519KeyPair,
    authenticator: StoreAuthenticator,
}

/// Checkpoint of an audit chain: a signed chain head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Tenant whose audit chain head is signed.
    pub tenant: TenantId,
    /// Number and hash of the last audit entry.
    pub head: ChainHead,
    /// Time at which the chain head was signed.
    pub at: Timestamp,
    /// Ed25519 signature over the other fields.
    #[serde(with = "crate::store::bytes")]
    pub signature: Vec<u8>,
}

impl AuditSigner {
    /// Creates a signer from the seed in the key file.
    pub fn new(seed: &[u8; 32]) -> Self {
        let key_pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("an Ed25519 seed has 32 bytes");
        AuditSigner { key_pair, authenticator: StoreAuthenticator::new(seed) }
    }

    /// Returns the authenticator of documents and audit entries.
    pub fn authenticator(&self) -> &StoreAuthenticator {
        &self.authenticator
    }

    /// Returns the public key that verifies the signatures of checkpoints, heads, segments, exports and backups.
    pub fn public_key(&self) -> &[u8] {
        self.key_pair.public_key().as_ref()
    }

    /// Signs the audit chain head of a tenant as a checkpoint.
    pub fn sign(&self, tenant: TenantId, head: ChainHead, at: Timestamp) -> Checkpoint {
        let signature = self.sign_text(&signing_text(tenant, head, at));
        Checkpoint { tenant, head, at, signature }
    }

    pub(crate) fn sign_text(&self, text: &[u8]) -> Vec<u8> {
        self.key_pair.sign(text).as_ref().to_vec()
    }
}

/// Returns whether the signature of a text is valid under this public key.
pub(crate) fn is_signed(public_key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(text, signature).is_ok()
}

impl Checkpoint {
    /// Returns whether the signature of the checkpoint is valid under this public key.
    pub fn is_signed_by(&self, public_key: &[u8]) -> bool {
        is_signed(public_key, &signing_text(self.tenant, self.head, self.at), &self.signature)
    }
}

fn signing_text(tenant: TenantId, head: ChainHead, at: Timestamp) -> Vec<u8> {
    format!("linchpin checkpoint 1|{tenant}|{}|{}|{at}", head.number, head.hash).into_bytes()
}

/// Verifier of a complete audit chain, entry by entry.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    head: ChainHead,
    /// Signed chain heads that the verification has not reached yet.
    expected: Vec<ChainHead>,
}

impl ChainVerifier {
    /// Creates a verifier that starts before the first audit entry of a tenant. The chain must contain the given heads;
    /// the caller has verified their signatures.
    pub fn new(tenant: TenantId, signed: impl IntoIterator<Item = ChainHead>) -> Self {
        let expected = signed.into_iter().filter(|head| head.number > 0).collect();
        ChainVerifier { head: ChainHead::start(tenant), expected }
    }

    /// Verifies that the next audit entry continues the chain.
    pub fn verify_entry(&mut self, row: &StoredAuditEntry) -> Result<(), ChainError> {
        self.head.verify_next(row)?;
        self.compare_signed_heads()
    }

    /// Continues after audit entries that are not available. `head` is their signed end.
    pub fn skip_to(&mut self, head: ChainHead) -> Result<(), ChainError> {
        self.head = head;
        self.compare_signed_heads()
    }

    /// Compares the signed heads with the head of the chain at the same entry. A head within skipped entries cannot be
    /// compared.
    fn compare_signed_heads(&mut self) -> Result<(), ChainError> {
        let head = self.head;
        let differs =
            self.expected.iter().any(|signed| signed.number == head.number && signed.hash != head.hash);
        self.expected.retain(|signed| signed.number > head.number);
        if differs {
            let reason = "the chain is consistent, but it is not the signed one: entries up to this one were rewritten";
            return Err(ChainError { number: head.number, kind: Damage::Rewritten, reason });
        }
        Ok(())
    }

    /// Returns the audit chain head at the last verified entry.
    pub fn head(&self) -> ChainHead {
        self.head
    }

    /// Finishes the verification of the audit chain and returns its head.
    pub fn finish(self) -> Result<ChainHead, ChainError> {
        if self.expected.is_empty() {
            return Ok(self.head);
        }
        let reason =
            "a signed checkpoint covers this entry, which is missing: the end of the audit was cut off";
        Err(ChainError { number: self.head.number + 1, kind: Damage::EndMissing, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: TenantId = TenantId::from_u128(1);

    fn chain(count: u64) -> (Vec<StoredAuditEntry>, ChainHead) {
        let mut head = ChainHead::start(ADA);
        let rows = (0..count).map(|number| {
            let at = Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
            head.append(
                AuditEntry::new(at, "user:1", "call.intent").with("call", number).with("tool", "echo"),
            )
        });
        (rows.collect(), head)
    }

    fn check(
        rows: &[StoredAuditEntry],
        checkpoint: Option<&Checkpoint>,
        key: &[u8],
    ) -> Result<ChainHead, ChainError> {
        let mut check =
            ChainVerifier::new(ADA, checkpoint.filter(|one| one.is_signed_by(key)).map(|one| one.head));
        rows.iter().try_for_each(|row| check.verify_entry(row))?;
        check.finish()
    }

    #[test]
    fn whatever_is_done_to_it_is_found() {
        let ((rows, head), signer) = (chain(8), AuditSigner::new(&[7; 32]));
        let checkpoint = signer.sign(ADA, ChainHead { number: 6, hash: rows[5].hash }, Timestamp::UNIX_EPOCH);
        let verify = |rows: &[StoredAuditEntry]| check(rows, Some(&checkpoint), signer.public_key());
        assert_eq!(verify(&rows), Ok(head));
        assert_eq!(verify(&rows[..6]).map(|head| head.number), Ok(6), "no checkpoint covers later entries");
        for index in 0..rows.len() {
            for change in [
                StoredAuditEntry { at: Timestamp::MAX, ..rows[index].clone() },
                StoredAuditEntry { actor: "user:2".into(), ..rows[index].clone() },
                StoredAuditEntry { action: "call.denied".into(), ..rows[index].clone() },
                StoredAuditEntry {
                    fields: rows[index].fields.replace("echo", "other"),
                    ..rows[index].clone()
                },
                StoredAuditEntry { fields: rows[index].fields.replace(':', ": "), ..rows[index].clone() },
                StoredAuditEntry {
                    fields: rows[index].fields.replace('{', r#"{"call":0,"#),
                    ..rows[index].clone()
                },
                StoredAuditEntry { hash: Digest::of("x").finish(), ..rows[index].clone() },
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
                assert!(error.to_string().ends_with("the end of the audit was cut off"), "{error}");
            }
        }
    }

    #[test]
    fn a_chain_that_was_written_anew_does_not_fit_its_checkpoint() {
        let ((rows, _), signer) = (chain(3), AuditSigner::new(&[7; 32]));
        let checkpoint = signer.sign(ADA, ChainHead { number: 3, hash: rows[2].hash }, Timestamp::UNIX_EPOCH);
        let mut head = ChainHead::start(ADA);
        let forged: Vec<_> =
            (0..3).map(|_| head.append(AuditEntry::new(Timestamp::UNIX_EPOCH, "x", "call.intent"))).collect();
        let error = check(&forged, Some(&checkpoint), signer.public_key()).unwrap_err();
        assert_eq!((error.number, error.kind), (3, Damage::Rewritten));
        for forged in [
            Checkpoint { head: ChainHead { number: 2, ..checkpoint.head }, ..checkpoint.clone() },
            Checkpoint { at: Timestamp::MAX, ..checkpoint.clone() },
            Checkpoint { tenant: TenantId::from_u128(2), ..checkpoint.clone() },
        ] {
            assert!(!forged.is_signed_by(signer.public_key()), "{forged:?}");
        }
        assert!(!checkpoint.is_signed_by(AuditSigner::new(&[8; 32]).public_key()));
    }

    #[test]
    fn nothing_of_others_can_forge_a_line() {
        let entry =
            AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "x").with("tool", "a\n\u{1b}[2J\u{202e}b");
        assert_eq!(entry.fields["tool"], "a\\n\\u{1b}[2J\\u{202e}b");
        let long = AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "x").with("tool", "x".repeat(5_000));
        assert_eq!(long.fields["tool"].as_str().unwrap().chars().count(), 1_001);
    }
}
