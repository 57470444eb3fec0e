//! Checks the audit: the entries in the store, and those before them in the files of segments.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::audits::last_checkpoint;
use crate::audit::{Broken, Check, Head};
use crate::error::Result;
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
    /// How far the last checkpoint says that it goes.
    pub checkpoint: Option<u64>,
    /// How many segments have left the store.
    pub segments: u64,
    /// Which of them could not be looked into.
    pub note: Option<String>,
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
    /// The folder with segments.
    pub segments: Option<PathBuf>,
}

/// Checks the audit of a tenant in a store and in files, against the last checkpoint that the store or the file knows. It needs
/// no hub that runs.
pub async fn verify(
    store: &dyn Store,
    tenant: TenantId,
    public_key: &[u8],
    beside: &Beside,
) -> Result<Verified> {
    let kept = store.checkpoint(tenant).await?;
    let filed = match &beside.checkpoints {
        Some(file) => last_checkpoint(file, tenant)?,
        None => None,
    };
    let last = kept.into_iter().chain(filed).max_by_key(|checkpoint| checkpoint.head.number);
    let mut found = Verified {
        is_whole: true,
        entries: 0,
        hash: Head::start(tenant).hash.to_string(),
        checkpoint: last.as_ref().map(|last| last.head.number),
        segments: 0,
        note: None,
        broken: None,
        problem: None,
    };
    let broken = match Check::new(tenant, last.as_ref(), public_key) {
        Err(broken) => Some((broken.number, broken.to_string())),
        Ok(check) => {
            let begin =
                || Going { store, tenant, public_key, check: check.clone(), segments: 0, away: Vec::new() };
            let mut going = begin();
            let mut broken = going.all(beside.segments.as_deref()).await?;
            // What is missing may have been put into a segment a moment ago.
            if broken.is_some() && stored(store, tenant).await?.len() as u64 != going.segments {
                going = begin();
                broken = going.all(beside.segments.as_deref()).await?;
            }
            let head = going.check.head();
            (found.entries, found.hash) = (head.number, head.hash.to_string());
            (found.segments, found.note) = (going.segments, note(&going.away));
            broken
        }
    };
    if let Some((number, problem)) = broken {
        (found.is_whole, found.broken, found.problem) = (false, Some(number), Some(problem));
    }
    Ok(found)
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
    async fn all(&mut self, folder: Option<&Path>) -> Result<Option<(u64, String)>> {
        for stored in stored(self.store, self.tenant).await? {
            self.segments += 1;
            let segment = stored.document.read::<Segment>().ok();
            if let Err(broken) = self.segment(segment, folder).await {
                return Ok(Some((broken.number, format!("segment {}: {broken}", self.segments))));
            }
        }
        loop {
            let rows = self.store.audit(self.tenant, self.check.head().number, MOST_ON_PAGE).await?;
            if rows.is_empty() {
                let broken = self.check.clone().end().err();
                return Ok(broken.map(|broken| (broken.number, broken.to_string())));
            }
            for row in rows {
                if let Err(broken) = self.check.row(&row) {
                    return Ok(Some((broken.number, broken.to_string())));
                }
            }
        }
    }

    async fn segment(&mut self, segment: Option<Segment>, folder: Option<&Path>) -> Result<(), Broken> {
        let head = self.check.head();
        let broken = |what| Broken { number: head.number + 1, what };
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
