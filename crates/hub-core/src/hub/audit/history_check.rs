//! Check of the entries of an audit: their chain, the signed heads, and the codes of the stored entries.

use super::documents::RemovedDocuments;
use crate::audit::{ChainError, ChainHead, ChainVerifier, Damage, StoredAuditEntry};
use crate::id::TenantId;
use crate::store::StoreAuthenticator;

/// Action of the entry that records that a user has accepted the history before it.
pub(super) const ACCEPTED: &str = "audit.accepted";

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
    /// Number of the entry after which each must have a code.
    coded_from: Option<u64>,
    /// First entry without the right code since the history was last accepted.
    unauthentic: Option<ChainError>,
}

impl<'a> HistoryCheck<'a> {
    /// Creates a check that starts before the first entry. The chain must contain the signed heads.
    pub(super) fn new(
        tenant: TenantId,
        signed: impl Iterator<Item = ChainHead>,
        signed_end: u64,
        authenticator: &'a StoreAuthenticator,
        coded_from: Option<u64>,
    ) -> Self {
        let history =
            History { chain: ChainVerifier::new(tenant, signed), removed: RemovedDocuments::default() };
        HistoryCheck { history, authenticator, signed_end, coded_from, unauthentic: None }
    }

    /// Verifies the next entry of the store. From the first entry with a code on, each must have the right one.
    pub(super) fn verify_stored(&mut self, row: &StoredAuditEntry) -> Result<(), ChainError> {
        let check = self.authenticator.check_entry(row);
        match check {
            Some(true) => {
                self.coded_from.get_or_insert(row.number);
                if row.action == ACCEPTED {
                    self.unauthentic = None;
                }
            }
            None if self.coded_from.is_none_or(|from| row.number <= from) => {}
            _ => {
                let error = || self.unauthentic_error(row.number);
                if self.unauthentic.is_none() {
                    self.unauthentic = Some(error());
                }
            }
        }
        self.history.verify_entry(row).map_err(|broken| match (broken.kind, &self.unauthentic) {
            (Damage::Rewritten, Some(unauthentic)) => unauthentic.clone(),
            (Damage::Rewritten, None) if check == Some(true) => {
                let reason = "a hub has written this history, but the signed head is not in it: a hub has continued an \
                              older copy of the data";
                ChainError { kind: Damage::Forked, reason, ..broken }
            }
            _ => broken,
        })
    }

    fn unauthentic_error(&self, number: u64) -> ChainError {
        if number > self.signed_end {
            let reason = "another program has added this entry after the signed head";
            return ChainError { number, kind: Damage::LateEntry, reason };
        }
        let reason = "the chain is consistent, but another program has written it from this entry on";
        ChainError { number, kind: Damage::Rewritten, reason }
    }

    /// Finishes the check.
    pub(super) fn finish(self) -> Result<ChainHead, ChainError> {
        let head = self.history.chain.finish()?;
        self.unauthentic.map_or(Ok(head), Err)
    }
}
