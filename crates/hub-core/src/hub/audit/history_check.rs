//! Check of the entries of an audit: their chain, the signed heads, and the codes of the stored entries.

use super::documents::RemovedDocuments;
use crate::audit::{ChainError, ChainHead, ChainVerifier, Damage, StoredAuditEntry};
use crate::id::TenantId;
use crate::store::StoreAuthenticator;

/// Chain of the verified entries, and the documents that they record as removed.
#[derive(Clone)]
pub(super) struct History {
    pub(super) chain: ChainVerifier,
    pub(super) removed: RemovedDocuments,
}

impl History {
    /// Verifies that the next entry continues the chain.
    pub(super) fn verify_entry(&mut self, row: &StoredAuditEntry) -> Result<(), ChainError> {
        self.removed.add(row);
        self.chain.verify_entry(row)
    }
}

/// State of the check of an audit.
#[derive(Clone)]
pub(super) struct HistoryCheck<'a> {
    pub(super) history: History,
    authenticator: &'a StoreAuthenticator,
    /// Number of the entry at the signed head: later ones are covered by their codes only.
    signed_end: u64,
    /// Number of the entry from which on each must have a code.
    codes_from: Option<u64>,
    /// First entry without the right code.
    unauthentic: Option<ChainError>,
}

impl<'a> HistoryCheck<'a> {
    /// Creates a check that starts before the first entry. The chain must contain the signed heads.
    pub(super) fn new(
        tenant: TenantId,
        signed: impl Iterator<Item = ChainHead>,
        signed_end: u64,
        authenticator: &'a StoreAuthenticator,
        codes_from: Option<u64>,
    ) -> Self {
        let history =
            History { chain: ChainVerifier::new(tenant, signed), removed: RemovedDocuments::default() };
        HistoryCheck { history, authenticator, signed_end, codes_from, unauthentic: None }
    }

    /// Verifies the next entry of the store.
    pub(super) fn verify_stored(&mut self, row: &StoredAuditEntry) -> Result<(), ChainError> {
        let is_authentic = self.authenticator.check_entry(row);
        let needs_code = self.codes_from.is_some_and(|from| row.number >= from);
        if needs_code && is_authentic != Some(true) && self.unauthentic.is_none() {
            self.unauthentic = Some(self.unauthentic_error(row.number));
        }
        self.history.verify_entry(row).map_err(|broken| match (broken.kind, &self.unauthentic) {
            (Damage::Rewritten, Some(unauthentic)) => unauthentic.clone(),
            (Damage::Rewritten, None) if is_authentic == Some(true) => {
                let reason = "a hub has written this history, but the signed head is not in it: a hub has continued an \
                              older copy of the data";
                ChainError { kind: Damage::Forked, reason, ..broken }
            }
            _ => broken,
        })
    }

    fn unauthentic_error(&self, number: u64) -> ChainError {
        if number > self.signed_end {
            let reason =
                "the entry follows the signed head and has no valid code: another program has added it";
            return ChainError { number, kind: Damage::LateEntry, reason };
        }
        let reason = "the entry has no valid code: another program has written it";
        ChainError { number, kind: Damage::Rewritten, reason }
    }

    /// Finishes the check.
    pub(super) fn finish(self) -> Result<ChainHead, ChainError> {
        let head = self.history.chain.finish()?;
        self.unauthentic.map_or(Ok(head), Err)
    }
}
