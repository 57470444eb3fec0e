//! The one that writes. What is written together is made sure of together, and what other hubs need to know of it goes
//! with it.

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
use super::joined::Joined;
use super::link::{Connected, Link};
use super::news::News;
use super::together::Together;
use super::{Stop, apply, failed, is_lost};

/// How many batches are made sure of at once, and how many events go with them besides their own.
const GROUP: usize = 64;
const EVENTS: usize = 256;
/// How long a group may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often what was not done is tried again, and when events are that nothing else goes with.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_secs(1);

/// A batch, and who waits until it is sure.
pub(super) struct Write {
    pub(super) tenant: TenantId,
    pub(super) batch: Batch,
    pub(super) done: oneshot::Sender<Result<()>>,
}

/// Writes.
pub(super) struct Writer {
    link: Link,
    joined: Option<Arc<Joined>>,
    /// What happens at this hub.
    told: Option<mpsc::Receiver<(TenantId, Told)>>,
    /// What of it is not kept yet.
    waiting: Vec<(TenantId, Told)>,
    /// Whether something of it is lost.
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

    /// Writes until nobody wants it any more.
    pub(super) async fn write_all(mut self, mut writes: mpsc::Receiver<Write>) {
        let (mut group, mut goes_on) = (Vec::with_capacity(GROUP), true);
        while goes_on {
            goes_on = self.gather(&mut writes, &mut group).await;
            let outcomes = self.write_group(&group).await;
            for (Write { done, .. }, outcome) in group.drain(..).zip(outcomes) {
                let _ = done.send(outcome); // whoever asked may have gone
            }
        }
    }

    /// Waits for something to write. Whether there may be more.
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
        // What happened because of what was written before goes with what is written now.
        while let Some(told) = &mut self.told
            && self.waiting.len() < EVENTS
            && let Ok(event) = told.try_recv()
        {
            self.waiting.push(event);
        }
        goes_on
    }

    /// Does a group at once. What was certainly not done is tried again: one by one if others were in the way, because
    /// two groups that take the same in another order would be so again.
    async fn write_group(&mut self, group: &[Write]) -> Vec<Result<()>> {
        if group.is_empty() && !self.waiting.is_empty() {
            let _ = self.write_part(group).await; // they wait on if that fails
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

    /// Does some batches in one transaction, and leaves a connection that can be used.
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
    let text = "the database was lost while this was kept, and nobody knows whether it is: look before you try again";
    Error::new(error::Kind::Unavailable, "store_unavailable", text)
}

/// Does some batches. What cannot be done is undone alone.
async fn transact(
    db: &Connected,
    hub: Option<&str>,
    part: &[Write],
    news: &mut News,
) -> Result<Vec<Result<()>>, Stop> {
    let tenants = part.iter().map(|write| write.tenant);
    // Sent without waiting for one another, in this order.
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
            // A mark and the first change after it are sent without waiting, too.
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
        // The database says that it did not: then that is so.
        Err(error) if error.code().is_some() && !is_lost(&error) => Err(error.into()),
        Err(error) => {
            failed(&error);
            Err(unsure().into())
        }
    }
}

/// Whether a batch is only about calls and questions that no other can be about at the same time: of two that are, one
/// fails. Such batches can be done in any order.
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

/// Does all batches without waiting for one another, most of them together. Whether they are done: if one of them cannot be,
/// none is.
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
