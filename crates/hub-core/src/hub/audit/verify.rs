//! Audit verification: the entries in the store, the older ones in segment files, and the documents.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::documents::DocumentReport;
use super::heads::store_id;
use super::history_check::HistoryCheck;
use crate::audit::head_file::{HeadFile, SignedHead};
use crate::audit::segment::SegmentFooter;
use crate::audit::{AuditSigner, ChainError, ChainHead, Checkpoint, Damage};
use crate::error::{self, Error, Result};
use crate::hub::last_checkpoint;
use crate::id::TenantId;
use crate::store::{DocumentKind, MAX_PAGE_SIZE, PageRequest, Store, StoredDocument};
use crate::text::hex;

/// Result of an audit verification: whether the audit is intact, and what was verified.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditVerification {
    /// Whether the audit is intact: no entry is changed or missing.
    pub intact: bool,
    /// Number of verified entries.
    pub entries: u64,
    /// Digest of the last verified entry.
    pub hash: String,
    /// Last entry that a signed checkpoint covers.
    pub checkpoint: Option<u64>,
    /// Last entry that the signed head beside the keys covers.
    pub head: Option<u64>,
    /// Number of segments archived from the store.
    pub segments: u64,
    /// Number of documents, such as servers, agents and tokens, that are as this hub has stored them.
    pub documents: u64,
    /// Ed25519 public key of the signatures, in hexadecimal.
    pub public_key: String,
    /// Note about what could not be verified or was ignored.
    pub note: Option<String>,
    /// Kind of damage, if the audit is not intact.
    pub kind: Option<Damage>,
    /// First entry that is not as it was written, if entries are damaged.
    pub first_bad_entry: Option<u64>,
    /// Description of the damage that was found in the audit.
    pub error: Option<String>,
}

impl AuditVerification {
    /// Returns an error with the damage if the audit is not intact: it must not be signed then.
    pub fn require_intact(&self) -> Result<()> {
        let Some(damage) = &self.error else { return Ok(()) };
        let text = format!("the audit is not intact, so that its export is not signed: {damage}");
        Err(Error::new(error::ErrorKind::Conflict, "audit_damaged", text))
    }
}

/// Paths of the audit files outside the store: checkpoints, signed heads and segments.
#[derive(Debug, Clone, Default)]
pub struct AuditFiles {
    /// File of audit checkpoints outside the store.
    pub checkpoints: Option<PathBuf>,
    /// File of signed heads of the audit.
    pub heads: Option<HeadFile>,
    /// Folder of audit segment files.
    pub segments: Option<PathBuf>,
}

/// Verifies the audit of a tenant in the store and in files, against the signed head and the last signed checkpoint.
/// Works without a running hub, and beside one.
pub async fn verify(
    store: &dyn Store,
    tenant: TenantId,
    signer: &AuditSigner,
    files: &AuditFiles,
) -> Result<AuditVerification> {
    let public_key = signer.public_key();
    // Read the signatures before the entries: a running hub writes them after the entries.
    let signatures = SignedState::read(store, tenant, public_key, files).await?;
    let new_run = || VerificationRun {
        store,
        tenant,
        public_key,
        check: HistoryCheck::new(
            tenant,
            signatures.expected(),
            signatures.head_number(),
            signer.authenticator(),
            signatures.codes_from(),
        ),
        segments: 0,
        missing_segments: Vec::new(),
    };
    let mut verification = new_run();
    let mut broken = verification.verify_all(files.segments.as_deref()).await?;
    // Missing entries may have been archived into a segment concurrently.
    if broken.is_some() && load_segment_documents(store, tenant).await?.len() as u64 != verification.segments
    {
        verification = new_run();
        broken = verification.verify_all(files.segments.as_deref()).await?;
    }
    let head = verification.check.history.chain.head();
    let removed = &verification.check.history.removed;
    let documents = DocumentReport::verify(store, tenant, signer.authenticator(), removed).await?;
    let broken = signatures
        .classify(broken, head.number, files)
        .or_else(|| signatures.find_changed_document(&documents));
    let notes: Vec<_> = signatures
        .notes(files, &documents)
        .into_iter()
        .chain(describe_missing_segments(&verification.missing_segments))
        .collect();
    let (kind, number, error) = match broken {
        Some(AuditDamage { kind, number, problem }) => (Some(kind), number, Some(problem)),
        None => (None, None, None),
    };
    Ok(AuditVerification {
        intact: kind.is_none(),
        entries: head.number,
        hash: head.hash.to_string(),
        checkpoint: signatures.checkpoint.as_ref().map(|last| last.head.number),
        head: signatures.head.as_ref().map(|signed| signed.head.number),
        segments: verification.segments,
        documents: documents.authentic,
        public_key: hex(public_key),
        note: Some(notes.join("; ")).filter(|note| !note.is_empty()),
        kind,
        first_bad_entry: number,
        error,
    })
}

/// Damage found in an audit: its kind, the first affected entry, if any, and a description.
struct AuditDamage {
    kind: Damage,
    number: Option<u64>,
    problem: String,
}

impl AuditDamage {
    fn new(broken: &ChainError, problem: String) -> Self {
        AuditDamage { kind: broken.kind, number: Some(broken.number), problem }
    }
}

/// Newest signed checkpoint and signed head of an audit, with which it is compared.
struct SignedState {
    checkpoint: Option<Checkpoint>,
    /// Number of checkpoints that are not signed with this key.
    unsigned: usize,
    head: Option<SignedHead>,
    /// Whether the signed head belongs to this store. A store without an id is older than the head, and is compared
    /// with it.
    is_same_store: bool,
}

impl SignedState {
    async fn read(
        store: &dyn Store,
        tenant: TenantId,
        public_key: &[u8],
        files: &AuditFiles,
    ) -> Result<Self> {
        let id = store_id(store).await?;
        let head = match &files.heads {
            Some(file) => file.find(id.as_deref(), tenant, public_key)?,
            None => None,
        };
        let (file_checkpoint, mut unsigned) = match &files.checkpoints {
            Some(file) => last_checkpoint(file, tenant, public_key)?,
            None => (None, 0),
        };
        let record = store.checkpoint(tenant).await?;
        unsigned += usize::from(record.as_ref().is_some_and(|record| !record.is_signed_by(public_key)));
        let record = record.filter(|record| record.is_signed_by(public_key));
        let checkpoint =
            record.into_iter().chain(file_checkpoint).max_by_key(|checkpoint| checkpoint.head.number);
        let is_same_store = head.as_ref().is_none_or(|head| id.is_none_or(|id| id == head.store));
        Ok(SignedState { checkpoint, unsigned, head, is_same_store })
    }

    /// Returns the chain heads of the checkpoint and the head file, which an undamaged audit chain contains.
    fn expected(&self) -> impl Iterator<Item = ChainHead> {
        let head = self.head.as_ref().filter(|_| self.is_same_store).map(|signed| signed.head);
        self.checkpoint.as_ref().map(|last| last.head).into_iter().chain(head)
    }

    /// Determines the kind of audit damage from the broken entry, the signed heads and the files.
    fn classify(&self, broken: Option<AuditDamage>, entries: u64, files: &AuditFiles) -> Option<AuditDamage> {
        let named = self.head_number();
        let checked = self.checkpoint.as_ref().map_or(0, |last| last.head.number);
        let found = |kind, number, problem| Some(AuditDamage { kind, number: Some(number), problem });
        if entries == 0
            && named.max(checked) > 0
            && broken.as_ref().is_none_or(|broken| broken.kind == Damage::EndMissing)
        {
            let problem = format!(
                "all entries of the audit were removed: its signed history has {} entries",
                named.max(checked)
            );
            return found(Damage::AllRemoved, 1, problem);
        }
        match broken {
            Some(AuditDamage { kind: Damage::EndMissing, number: Some(number), .. })
                if checked <= entries =>
            {
                let problem = format!(
                    "the signed head names entry {named}, and the history ends with entry {entries}: the data directory is an older copy, or \
                     the end was removed together with its checkpoints"
                );
                found(Damage::OlderCopy, number, problem)
            }
            Some(broken) => Some(broken),
            None if !self.is_same_store => {
                let problem = format!(
                    "the signed head names entry {named} of another database: the database was replaced, or all entries were removed and the \
                     hub has started again"
                );
                found(Damage::OtherStore, 1, problem)
            }
            None if entries > 0 && self.checkpoint.is_none() && files.heads.is_some() => {
                let problem = "the audit has entries, but no signed checkpoint: the checkpoints were removed"
                    .to_owned();
                found(Damage::NoCheckpoint, 1, problem)
            }
            None => None,
        }
    }

    /// Returns the damage of a document. Once the signed head states that all documents have codes, each needs one.
    fn find_changed_document(&self, documents: &DocumentReport) -> Option<AuditDamage> {
        let planted = documents.first_without_code.as_ref().filter(|_| self.codes_from().is_some());
        let planted =
            planted.map(|name| format!("{name} was added or changed in the database by another program"));
        let problem = documents.damage.clone().or(planted)?;
        Some(AuditDamage { kind: Damage::DocumentChanged, number: None, problem })
    }

    /// Returns the number of the entry that the signed head names; 0 if there is no head.
    fn head_number(&self) -> u64 {
        self.head.as_ref().map_or(0, |signed| signed.head.number)
    }

    /// Returns the number of the entry from which on each must have a code, if the signed head states that.
    fn codes_from(&self) -> Option<u64> {
        self.head.as_ref().filter(|_| self.is_same_store).and_then(|head| head.codes_from)
    }

    fn notes(&self, files: &AuditFiles, documents: &DocumentReport) -> Vec<String> {
        let mut notes = Vec::new();
        if documents.without_code > 0 && self.codes_from().is_none() {
            notes.push(format!(
                "{} documents were stored by an earlier version and could not be verified: start the hub once",
                documents.without_code
            ));
        }
        match self.unsigned {
            0 => {}
            1 => notes.push("1 checkpoint is not signed with the key of this hub and was ignored".to_owned()),
            count => notes.push(format!(
                "{count} checkpoints are not signed with the key of this hub and were ignored"
            )),
        }
        let Some(file) = &files.heads else { return notes };
        if self.head.is_none() {
            let text = "there is no signed head yet, so an older copy of the data directory cannot be detected: start the hub once";
            notes.push(text.to_owned());
        }
        if file.is_in_data_dir {
            let text = "the signed head is in the data directory, so an older copy of that directory cannot be detected: move \
                        the key file elsewhere, or change `head` in `[audit]`";
            notes.push(text.to_owned());
        }
        notes
    }
}

/// Returns all audit segments of a tenant, in order.
pub async fn list_segments(store: &dyn Store, tenant: TenantId) -> Result<Vec<SegmentFooter>> {
    let all = load_segment_documents(store, tenant).await?;
    all.into_iter().map(|stored| stored.document.parse_body()).collect()
}

async fn load_segment_documents(store: &dyn Store, tenant: TenantId) -> Result<Vec<StoredDocument>> {
    let (mut all, mut paging) = (Vec::new(), PageRequest { after: None, limit: MAX_PAGE_SIZE });
    loop {
        let page = store.documents(tenant, DocumentKind::Segment, None, &paging).await?;
        all.extend(page.items);
        paging.after = page.next;
        if paging.after.is_none() {
            return Ok(all);
        }
    }
}

/// State of a running audit verification.
struct VerificationRun<'a> {
    store: &'a dyn Store,
    tenant: TenantId,
    public_key: &'a [u8],
    check: HistoryCheck<'a>,
    segments: u64,
    /// Numbers of the audit segments whose files are not available.
    missing_segments: Vec<u64>,
}

impl VerificationRun<'_> {
    /// Verifies all audit segments and stored entries. Returns the first damage.
    async fn verify_all(&mut self, folder: Option<&Path>) -> Result<Option<AuditDamage>> {
        for stored in load_segment_documents(self.store, self.tenant).await? {
            self.segments += 1;
            let segment = stored.document.parse_body::<SegmentFooter>().ok();
            if let Err(broken) = self.verify_segment(segment, folder).await {
                let problem = format!("segment {}: {broken}", self.segments);
                return Ok(Some(AuditDamage::new(&broken, problem)));
            }
        }
        loop {
            let rows = self
                .store
                .audit_entries(self.tenant, self.check.history.chain.head().number, MAX_PAGE_SIZE)
                .await?;
            if rows.is_empty() {
                let broken = self.check.clone().finish().err();
                return Ok(broken.map(|broken| AuditDamage::new(&broken, broken.to_string())));
            }
            for row in rows {
                if let Err(broken) = self.check.verify_stored(&row) {
                    return Ok(Some(AuditDamage::new(&broken, broken.to_string())));
                }
            }
        }
    }

    async fn verify_segment(
        &mut self,
        segment: Option<SegmentFooter>,
        folder: Option<&Path>,
    ) -> Result<(), ChainError> {
        let head = self.check.history.chain.head();
        let broken = |reason| ChainError::new(head.number + 1, reason);
        let is_valid = |segment: &SegmentFooter| {
            (segment.tenant, segment.segment) == (self.tenant, self.segments)
                && segment.is_signed_by(self.public_key)
        };
        let segment = segment
            .filter(is_valid)
            .ok_or_else(|| broken("the segment of the entry is not signed with the key of this hub"))?;
        if segment.start_head() != head {
            return Err(broken("the segment of the entry is missing or out of order"));
        }
        if let Some(folder) = folder.map(Path::to_owned) {
            let (mut history, segment) = (self.check.history.clone(), segment.clone());
            let read = spawn_blocking(move || {
                segment.read(&folder, |row| history.verify_entry(&row)).map(|exists| (exists, history))
            });
            let read = read.await.map_err(|_| broken("the segment file of the entry cannot be read"))?;
            if let (true, history) = read? {
                self.check.history = history;
                return Ok(());
            }
        }
        self.missing_segments.push(self.segments);
        self.check.history.chain.skip_to(segment.end_head())
    }
}

/// Describes the segments without files, for example `1-3, 5`.
fn describe_missing_segments(missing: &[u64]) -> Option<String> {
    let runs: Vec<_> = missing
        .chunk_by(|one, next| one + 1 == *next)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    let list = runs.join(", ");
    match missing {
        [] => None,
        [_] => Some(format!(
            "the file of segment {list} is not available, so that its entries were not verified: verification continues \
             at the signed end of the segment"
        )),
        _ => Some(format!(
            "the files of segments {list} are not available, so that their entries were not verified: verification \
             continues at the signed ends of the segments"
        )),
    }
}
