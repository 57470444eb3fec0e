//! Checks the audit: the entries in the store, and those before them in the files of segments.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::audits::last_checkpoint;
use super::heads::store_id;
use crate::audit::{Broken, Check, Checkpoint, Damage, Head};
use crate::error::Result;
use crate::heads::{HeadFile, SignedHead};
use crate::id::TenantId;
use crate::segment::Segment;
use crate::store::{Kind, MOST_ON_PAGE, Paging, Store, Stored};

/// What a check of the audit found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Verified {
    /// Whether everything is as it was written.
    pub is_whole: bool,
    /// How many entries were found to be.
    pub entries: u64,
    /// The digest of the last of them.
    pub hash: String,
    /// The last entry that a signed checkpoint names.
    pub checkpoint: Option<u64>,
    /// The last entry that the signed head beside the keys names.
    pub head: Option<u64>,
    /// How many segments have left the store.
    pub segments: u64,
    /// What could not be checked, or was ignored.
    pub note: Option<String>,
    /// What happened to the audit, if it is not as it was written.
    pub kind: Option<Damage>,
    /// The first entry that is not as it was written.
    pub broken: Option<u64>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// Where what belongs to the audit is beside the store.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// The file with checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// The file with signed heads.
    pub heads: Option<HeadFile>,
    /// The folder with segments.
    pub segments: Option<PathBuf>,
}

/// Checks the audit of a tenant in a store and in files, against the signed head and the last signed checkpoint. It needs no
/// running hub, and may be used beside one.
pub async fn verify(
    store: &dyn Store,
    tenant: TenantId,
    public_key: &[u8],
    beside: &Beside,
) -> Result<Verified> {
    // Before the entries: a running hub writes it after them.
    let signed = Signed::read(store, tenant, public_key, beside).await?;
    let begin = || Going {
        store,
        tenant,
        public_key,
        check: Check::new(tenant, signed.expected()),
        segments: 0,
        away: Vec::new(),
    };
    let mut going = begin();
    let mut broken = going.all(beside.segments.as_deref()).await?;
    // What is missing may have been put into a segment a moment ago.
    if broken.is_some() && stored(store, tenant).await?.len() as u64 != going.segments {
        going = begin();
        broken = going.all(beside.segments.as_deref()).await?;
    }
    let head = going.check.head();
    let broken = signed.judge(broken, head.number, beside);
    let notes: Vec<_> = signed.notes(beside).into_iter().chain(note(&going.away)).collect();
    let (kind, number, problem) = match broken {
        Some(Found { kind, number, problem }) => (Some(kind), Some(number), Some(problem)),
        None => (None, None, None),
    };
    Ok(Verified {
        is_whole: kind.is_none(),
        entries: head.number,
        hash: head.hash.to_string(),
        checkpoint: signed.checkpoint.as_ref().map(|last| last.head.number),
        head: signed.head.as_ref().map(|signed| signed.head.number),
        segments: going.segments,
        note: Some(notes.join("; ")).filter(|note| !note.is_empty()),
        kind,
        broken: number,
        problem,
    })
}

/// What is wrong with an audit.
struct Found {
    kind: Damage,
    number: u64,
    problem: String,
}

impl Found {
    fn new(broken: &Broken, problem: String) -> Self {
        Found { kind: broken.kind, number: broken.number, problem }
    }
}

/// What was signed about an audit.
struct Signed {
    checkpoint: Option<Checkpoint>,
    /// Checkpoints that are not signed with this key.
    unsigned: usize,
    head: Option<SignedHead>,
    /// Whether the head is of this store. A store without an id is older than the head, and is compared with it.
    is_own: bool,
}

impl Signed {
    async fn read(store: &dyn Store, tenant: TenantId, public_key: &[u8], beside: &Beside) -> Result<Self> {
        let id = store_id(store).await?;
        let head = match &beside.heads {
            Some(file) => file.find(id.as_deref(), tenant, public_key)?,
            None => None,
        };
        let (filed, mut unsigned) = match &beside.checkpoints {
            Some(file) => last_checkpoint(file, tenant, public_key)?,
            None => (None, 0),
        };
        let kept = store.checkpoint(tenant).await?;
        unsigned += usize::from(kept.as_ref().is_some_and(|kept| !kept.is_signed_by(public_key)));
        let kept = kept.filter(|kept| kept.is_signed_by(public_key));
        let checkpoint = kept.into_iter().chain(filed).max_by_key(|checkpoint| checkpoint.head.number);
        let is_own = head.as_ref().is_none_or(|head| id.is_none_or(|id| id == head.store));
        Ok(Signed { checkpoint, unsigned, head, is_own })
    }

    /// What the chain must contain.
    fn expected(&self) -> impl Iterator<Item = Head> {
        let head = self.head.as_ref().filter(|_| self.is_own).map(|signed| signed.head);
        self.checkpoint.as_ref().map(|last| last.head).into_iter().chain(head)
    }

    /// Says what happened, from what the check of the chain found.
    fn judge(&self, broken: Option<Found>, entries: u64, beside: &Beside) -> Option<Found> {
        let named = self.head.as_ref().map_or(0, |signed| signed.head.number);
        let checked = self.checkpoint.as_ref().map_or(0, |last| last.head.number);
        let found = |kind, number, problem| Some(Found { kind, number, problem });
        if entries == 0
            && named.max(checked) > 0
            && broken.as_ref().is_none_or(|broken| broken.kind == Damage::EndMissing)
        {
            let problem = format!("all entries were removed: {} were signed", named.max(checked));
            return found(Damage::AllRemoved, 1, problem);
        }
        match broken {
            Some(Found { kind: Damage::EndMissing, number, .. }) if checked <= entries => {
                let problem = format!(
                    "the signed head names entry {named}, and the history ends with entry {entries}: the data directory is an older copy, or \
                     the end was removed together with its checkpoints"
                );
                found(Damage::OlderCopy, number, problem)
            }
            Some(broken) => Some(broken),
            None if !self.is_own => {
                let problem = format!(
                    "the signed head names entry {named} of another database: this one was put in its place, or everything was removed and the \
                     hub has started again"
                );
                found(Damage::OtherStore, 1, problem)
            }
            None if entries > 0 && self.checkpoint.is_none() && beside.heads.is_some() => {
                let problem =
                    "there are entries, and no signed checkpoint: the checkpoints were removed".to_owned();
                found(Damage::NoCheckpoint, 1, problem)
            }
            None => None,
        }
    }

    fn notes(&self, beside: &Beside) -> Vec<String> {
        let mut notes = Vec::new();
        match self.unsigned {
            0 => {}
            1 => notes.push("1 checkpoint is not signed with this key and was ignored".to_owned()),
            count => notes.push(format!("{count} checkpoints are not signed with this key and were ignored")),
        }
        let Some(file) = &beside.heads else { return notes };
        if self.head.is_none() {
            let text = "there is no signed head yet, so an older copy of the data directory cannot be told: start the hub once";
            notes.push(text.to_owned());
        }
        if file.is_inside {
            let text = "the signed head is in the data directory, so an older copy of it cannot be told: move the key file elsewhere";
            notes.push(text.to_owned());
        }
        notes
    }
}

/// All segments of a tenant, in their order.
pub async fn every_segment(store: &dyn Store, tenant: TenantId) -> Result<Vec<Segment>> {
    let all = stored(store, tenant).await?;
    all.into_iter().map(|stored| stored.document.read()).collect()
}

async fn stored(store: &dyn Store, tenant: TenantId) -> Result<Vec<Stored>> {
    let (mut all, mut paging) = (Vec::new(), Paging { after: None, limit: MOST_ON_PAGE });
    loop {
        let page = store.documents(tenant, Kind::Segment, None, &paging).await?;
        all.extend(page.items);
        paging.after = page.next;
        if paging.after.is_none() {
            return Ok(all);
        }
    }
}

/// How far a check has come.
struct Going<'a> {
    store: &'a dyn Store,
    tenant: TenantId,
    public_key: &'a [u8],
    check: Check,
    segments: u64,
    /// Segments whose files are not at hand.
    away: Vec<u64>,
}

impl Going<'_> {
    /// Checks everything. The first entry that is wrong, if there is one, and what is wrong with it.
    async fn all(&mut self, folder: Option<&Path>) -> Result<Option<Found>> {
        for stored in stored(self.store, self.tenant).await? {
            self.segments += 1;
            let segment = stored.document.read::<Segment>().ok();
            if let Err(broken) = self.segment(segment, folder).await {
                let problem = format!("segment {}: {broken}", self.segments);
                return Ok(Some(Found::new(&broken, problem)));
            }
        }
        loop {
            let rows = self.store.audit(self.tenant, self.check.head().number, MOST_ON_PAGE).await?;
            if rows.is_empty() {
                let broken = self.check.clone().end().err();
                return Ok(broken.map(|broken| Found::new(&broken, broken.to_string())));
            }
            for row in rows {
                if let Err(broken) = self.check.row(&row) {
                    return Ok(Some(Found::new(&broken, broken.to_string())));
                }
            }
        }
    }

    async fn segment(&mut self, segment: Option<Segment>, folder: Option<&Path>) -> Result<(), Broken> {
        let head = self.check.head();
        let broken = |what| Broken::new(head.number + 1, what);
        let own = |segment: &Segment| {
            (segment.tenant, segment.segment) == (self.tenant, self.segments)
                && segment.is_signed_by(self.public_key)
        };
        let segment =
            segment.filter(own).ok_or_else(|| broken("its segment was not sealed with this key"))?;
        if segment.begins() != head {
            return Err(broken("its segment is missing, or not in its place"));
        }
        if let Some(folder) = folder.map(Path::to_owned) {
            let (mut check, segment) = (self.check.clone(), segment.clone());
            let read = spawn_blocking(move || {
                segment.read(&folder, |row| check.row(&row)).map(|is_there| (is_there, check))
            });
            let read = read.await.map_err(|_| broken("the file of its segment cannot be read"))?;
            if let (true, check) = read? {
                self.check = check;
                return Ok(());
            }
        }
        self.away.push(self.segments);
        self.check.skip(segment.ends())
    }
}

/// Which segments are not at hand, such as `1-3, 5`.
fn note(away: &[u64]) -> Option<String> {
    let runs: Vec<_> = away
        .chunk_by(|one, next| one + 1 == *next)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    let which = runs.join(", ");
    match away {
        [] => None,
        [_] => Some(format!("segment {which} is not at hand: the chain continues from its sealed head")),
        _ => Some(format!("segments {which} are not at hand: the chain continues from their sealed heads")),
    }
}
