//! Writer task: commits batches in groups, in one transaction with the messages that peer hubs need about them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use linchpin_hub_core::events::Told;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Batch, Change};
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::audit::{Chains, is_kept};
use super::cluster::Joined;
use super::cluster_log::News;
use super::connection::{Connected, Link};
use super::grouped_calls::Together;
use super::{Stop, apply, failed, is_lost};

/// Maximum number of batches per commit.
const GROUP: usize = 64;
/// Maximum number of other events per commit, besides those of the batches.
const EVENTS: usize = 256;
/// Timeout of the transaction of a group.
const PATIENCE: Duration = Duration::from_secs(15);
/// Maximum number of retries of a transaction that was certainly not committed.
const TRIES: u32 = 5;
/// Delay before events that failed to be written are retried without a batch.
const AGAIN: Duration = Duration::from_secs(1);

/// Batch with the sender of its outcome, which is sent after the commit.
pub(super) struct Write {
    pub(super) tenant: TenantId,
    pub(super) batch: Batch,
    pub(super) done: oneshot::Sender<Result<()>>,
}

/// Writer of one database.
pub(super) struct Writer {
    link: Link,
    joined: Option<Arc<Joined>>,
    /// Events of this hub.
    told: Option<mpsc::Receiver<(TenantId, Told)>>,
    /// Events that are not stored yet.
    waiting: Vec<(TenantId, Told)>,
    /// Whether events were dropped.
    is_cut: bool,
}

impl Writer {
    pub(super) fn new(
        link: Link,
        joined: Option<Arc<Joined>>,
        told: Option<mpsc::Receiver<(TenantId, Told)>>,
    ) -> Self {
        Writer { link, joined, told, waiting: Vec::new(), is_cut: false }
    }

    /// Writes until the queue is closed.
    pub(super) async fn write_all(mut self, mut writes: mpsc::Receiver<Write>) {
        let (mut group, mut goes_on) = (Vec::with_capacity(GROUP), true);
        while goes_on {
            goes_on = self.gather(&mut writes, &mut group).await;
            let outcomes = self.write_group(&group).await;
            for (Write { done, .. }, outcome) in group.drain(..).zip(outcomes) {
                let _ = done.send(outcome); // the caller may have dropped its future
            }
        }
    }

    /// Waits for batches or events, and returns `false` once the queue is closed.
    async fn gather(&mut self, writes: &mut mpsc::Receiver<Write>, group: &mut Vec<Write>) -> bool {
        let has_waiting = !self.waiting.is_empty();
        let (told, waiting) = (&mut self.told, &mut self.waiting);
        let events = async {
            match told {
                Some(told) => told.recv_many(waiting, EVENTS).await,
                None => std::future::pending().await,
            }
        };
        let goes_on = tokio::select! {
            biased;
            count = writes.recv_many(group, GROUP) => count > 0,
            _ = events, if !has_waiting => true,
            () = sleep(AGAIN), if has_waiting => true,
        };
        // Events caused by earlier writes are stored with this group.
        while let Some(told) = &mut self.told
            && self.waiting.len() < EVENTS
            && let Ok(event) = told.try_recv()
        {
            self.waiting.push(event);
        }
        goes_on
    }

    /// Commits a group. Batches that were certainly not committed are retried: one by one after a conflict, because two
    /// groups that lock the same rows in another order would conflict again.
    async fn write_group(&mut self, group: &[Write]) -> Vec<Result<()>> {
        if group.is_empty() && !self.waiting.is_empty() {
            let _ = self.write_part(group).await; // on failure they stay queued
        }
        let (mut outcomes, mut size, mut tries) = (Vec::with_capacity(group.len()), group.len(), TRIES);
        while outcomes.len() < group.len() {
            let rest = &group[outcomes.len()..];
            let part = &rest[..size.min(rest.len())];
            match self.write_part(part).await {
                Ok(done) => {
                    outcomes.extend(done);
                    tries = TRIES;
                }
                Err(stop) if tries > 0 && (stop.is_lost() || stop.is_clash()) => {
                    tries -= 1;
                    if stop.is_clash() {
                        size = 1;
                    }
                }
                Err(stop) => outcomes.extend(vec![Err(stop.into()); part.len()]),
            }
        }
        outcomes
    }

    /// Commits some batches in one transaction, and leaves the connection usable.
    async fn write_part(&mut self, part: &[Write]) -> Result<Vec<Result<()>>, Stop> {
        let db = self.link.get().await?;
        let mut news = News::default();
        if let Some(joined) = &self.joined {
            self.is_cut |= joined.shared.events.was_cut();
            news.is_cut = self.is_cut;
            news.told = std::mem::take(&mut self.waiting);
        }
        let hub = self.joined.as_ref().map(|joined| &*joined.hub);
        let outcomes = timeout(PATIENCE, transact(&db, hub, part, &mut news)).await;
        if matches!(outcomes, Ok(Ok(_))) {
            self.is_cut = false;
        } else {
            self.waiting = news.told;
        }
        let Ok(outcomes) = outcomes else {
            self.link.forget(&db).await;
            return Err(unsure().into());
        };
        if outcomes.is_err() && !matches!(timeout(PATIENCE, db.run("ROLLBACK")).await, Ok(Ok(()))) {
            self.link.forget(&db).await;
        }
        outcomes
    }
}

fn unsure() -> Error {
    let text = "the database connection was lost during the commit, so the change may or may not be stored: \
                check before you retry";
    Error::new(error::Kind::Unavailable, "store_unavailable", text)
}

/// Runs the transaction of some batches. A batch that fails is rolled back alone.
async fn transact(
    db: &Connected,
    hub: Option<&str>,
    part: &[Write],
    news: &mut News,
) -> Result<Vec<Result<()>>, Stop> {
    let tenants = part.iter().map(|write| write.tenant);
    // Pipelined in this order.
    let (begun, chains) = tokio::join!(biased; db.run("BEGIN"), Chains::take(db, tenants));
    begun?;
    let mut chains = chains?;
    let are_done = part.len() > 1 && part.iter().all(is_apart) && all_at_once(db, hub, part).await?;
    let mut outcomes = Vec::with_capacity(part.len());
    let mut mark = "SAVEPOINT part";
    for Write { tenant, batch, .. } in part {
        let done = if are_done {
            Ok(())
        } else {
            // A savepoint and the first change after it are pipelined, too.
            let (marked, done) = tokio::join!(biased; db.run(mark), apply(db, hub, *tenant, batch));
            marked?;
            done
        };
        let outcome = match done {
            Ok(()) => chains.append(*tenant, &batch.audit).inspect(|()| news.add(*tenant, batch)),
            Err(stop) if stop.is_lost() || stop.is_clash() => return Err(stop),
            Err(stop) => Err(stop.into()),
        };
        mark = if outcome.is_ok() { "RELEASE part; SAVEPOINT part" } else { "ROLLBACK TO part" };
        outcomes.push(outcome);
    }
    if outcomes.last().is_some_and(Result::is_err) {
        db.run(mark).await?;
    }
    let (kept, told) = tokio::join!(biased; chains.keep(db), news.keep(db, hub));
    kept.and(told)?;
    match db.run("COMMIT").await {
        Ok(()) => Ok(outcomes),
        // The database reports that the commit failed, so it is certain.
        Err(error) if error.code().is_some() && !is_lost(&error) => Err(error.into()),
        Err(error) => {
            failed(&error);
            Err(unsure().into())
        }
    }
}

/// Returns whether a batch changes nothing but calls and approvals. Of two batches that change the same one, one fails,
/// so such batches can be applied in any order.
fn is_apart(write: &Write) -> bool {
    let is_apart = |change: &Change| {
        matches!(
            change,
            Change::Open(_)
                | Change::Start { .. }
                | Change::Finish { .. }
                | Change::Edit { .. }
                | Change::Ask(_)
                | Change::Decide { .. }
                | Change::Use { .. }
                | Change::Same(_)
        )
    };
    write.batch.changes.iter().all(is_apart) && write.batch.audit.iter().all(is_kept)
}

/// Applies all batches, pipelined, most of them grouped into a few statements. Returns whether they are applied: if one
/// of them fails, none is.
async fn all_at_once(db: &Connected, hub: Option<&str>, part: &[Write]) -> Result<bool, Stop> {
    let mut together = Together::default();
    let mut under_way: Vec<_> = part
        .iter()
        .filter(|Write { tenant, batch, .. }| !together.take(*tenant, batch))
        .map(|Write { tenant, batch, .. }| Some(Box::pin(apply(db, hub, *tenant, batch))))
        .collect();
    let mut failure = None;
    let others = poll_fn(|context| {
        for one in &mut under_way {
            if let Some(Poll::Ready(done)) = one.as_mut().map(|one| one.as_mut().poll(context)) {
                *one = None;
                failure = failure.take().or(done.err());
            }
        }
        if under_way.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    });
    let (marked, done, ()) = tokio::join!(biased; db.run("SAVEPOINT part"), together.apply(db, hub), others);
    marked?;
    match done.and_then(|is_done| failure.map_or(Ok(is_done), Err)) {
        Ok(true) => Ok(true),
        Err(stop) if stop.is_lost() || stop.is_clash() => Err(stop),
        Ok(false) | Err(_) => {
            db.run("ROLLBACK TO part; RELEASE part").await?;
            Ok(false)
        }
    }
}
