//! Writer task: commits batches in groups, in one transaction with the messages that peer hubs need about them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use linchpin_hub_core::events::NewEvent;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Batch, StoreChange};
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::audit::{ChainLocks, is_storable};
use super::cluster::ClusterMember;
use super::cluster_log::ClusterMessages;
use super::connection::{DbConnection, ReconnectingConnection};
use super::grouped_calls::GroupedCalls;
use super::{StoreFailure, apply, database_error, is_lost};

/// Maximum number of batches per commit.
const MAX_GROUP_SIZE: usize = 64;
/// Maximum number of events per commit, besides those of the batches.
const MAX_EVENTS: usize = 256;
/// Timeout of the transaction that commits a group of batches.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of retries of a transaction that was certainly not committed.
const MAX_RETRIES: u32 = 5;
/// Delay before events that failed to be written are retried without a batch.
const EVENT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Batch to be written to PostgreSQL, with the sender of its outcome, which is sent after the commit.
pub(super) struct WriteRequest {
    pub(super) tenant: TenantId,
    pub(super) batch: Batch,
    pub(super) outcome: oneshot::Sender<Result<()>>,
}

/// State of the task that executes all writes to one database, one commit after another.
pub(super) struct Writer {
    connection: ReconnectingConnection,
    cluster: Option<Arc<ClusterMember>>,
    /// Channel from which the writer receives events of this hub, to store them for the other hubs of the cluster.
    events: Option<mpsc::Receiver<(TenantId, NewEvent)>>,
    /// Events that are not stored in the cluster log yet.
    pending_events: Vec<(TenantId, NewEvent)>,
    /// Whether events of this hub were dropped, so that peer hubs must be notified of a gap.
    has_lost_events: bool,
}

impl Writer {
    pub(super) fn new(
        connection: ReconnectingConnection,
        cluster: Option<Arc<ClusterMember>>,
        events: Option<mpsc::Receiver<(TenantId, NewEvent)>>,
    ) -> Self {
        Writer { connection, cluster, events, pending_events: Vec::new(), has_lost_events: false }
    }

    /// Commits queued write requests to the database until the queue is closed.
    pub(super) async fn run(mut self, mut writes: mpsc::Receiver<WriteRequest>) {
        let (mut group, mut is_open) = (Vec::with_capacity(MAX_GROUP_SIZE), true);
        while is_open {
            is_open = self.wait_for_work(&mut writes, &mut group).await;
            let outcomes = self.write_group(&group).await;
            for (WriteRequest { outcome: outcome_sender, .. }, outcome) in group.drain(..).zip(outcomes) {
                let _ = outcome_sender.send(outcome); // the caller may have dropped its future
            }
        }
    }

    /// Waits for batches or events, and returns `false` once the queue is closed.
    async fn wait_for_work(
        &mut self,
        writes: &mut mpsc::Receiver<WriteRequest>,
        group: &mut Vec<WriteRequest>,
    ) -> bool {
        let has_waiting = !self.pending_events.is_empty();
        let (receiver, pending_events) = (&mut self.events, &mut self.pending_events);
        let events = async {
            match receiver {
                Some(receiver) => receiver.recv_many(pending_events, MAX_EVENTS).await,
                None => std::future::pending().await,
            }
        };
        let is_open = tokio::select! {
            biased;
            count = writes.recv_many(group, MAX_GROUP_SIZE) => count > 0,
            _ = events, if !has_waiting => true,
            () = sleep(EVENT_RETRY_DELAY), if has_waiting => true,
        };
        // Events caused by earlier writes are stored with this group.
        while let Some(receiver) = &mut self.events
            && self.pending_events.len() < MAX_EVENTS
            && let Ok(event) = receiver.try_recv()
        {
            self.pending_events.push(event);
        }
        is_open
    }

    /// Commits a group of batches. Batches that were certainly not committed are retried: one by one after a conflict,
    /// because two groups that lock the same rows in another order would conflict again.
    async fn write_group(&mut self, group: &[WriteRequest]) -> Vec<Result<()>> {
        if group.is_empty() && !self.pending_events.is_empty() {
            let _ = self.write_batches(group).await; // on failure they stay queued
        }
        let (mut outcomes, mut size, mut retries) =
            (Vec::with_capacity(group.len()), group.len(), MAX_RETRIES);
        while outcomes.len() < group.len() {
            let rest = &group[outcomes.len()..];
            let part = &rest[..size.min(rest.len())];
            match self.write_batches(part).await {
                Ok(written) => {
                    outcomes.extend(written);
                    retries = MAX_RETRIES;
                }
                Err(stop)
                    if retries > 0 && (stop.is_connection_lost() || stop.is_serialization_failure()) =>
                {
                    retries -= 1;
                    if stop.is_serialization_failure() {
                        size = 1;
                    }
                }
                Err(stop) => outcomes.extend(vec![Err(stop.into()); part.len()]),
            }
        }
        outcomes
    }

    /// Commits some batches in one transaction, and leaves the connection usable.
    async fn write_batches(&mut self, part: &[WriteRequest]) -> Result<Vec<Result<()>>, StoreFailure> {
        let db = self.connection.get().await?;
        let mut messages = ClusterMessages::default();
        if let Some(member) = &self.cluster {
            self.has_lost_events |= member.shared.events.take_overflowed();
            messages.has_lost_events = self.has_lost_events;
            messages.events = std::mem::take(&mut self.pending_events);
        }
        let hub = self.cluster.as_ref().map(|member| &*member.hub);
        let outcomes = timeout(COMMIT_TIMEOUT, transact(&db, hub, part, &mut messages)).await;
        if matches!(outcomes, Ok(Ok(_))) {
            self.has_lost_events = false;
        } else {
            self.pending_events = messages.events;
        }
        let Ok(outcomes) = outcomes else {
            self.connection.discard(&db).await;
            return Err(commit_uncertain().into());
        };
        if outcomes.is_err() && !matches!(timeout(COMMIT_TIMEOUT, db.run("ROLLBACK")).await, Ok(Ok(()))) {
            self.connection.discard(&db).await;
        }
        outcomes
    }
}

fn commit_uncertain() -> Error {
    let text = "the database connection was lost during the commit, so the change may or may not be stored: \
                check before you retry";
    Error::new(error::ErrorKind::Unavailable, "store_unavailable", text)
}

/// Commits several batches in one transaction. A batch that fails is rolled back alone.
async fn transact(
    db: &DbConnection,
    hub: Option<&str>,
    part: &[WriteRequest],
    messages: &mut ClusterMessages,
) -> Result<Vec<Result<()>>, StoreFailure> {
    let tenants = part.iter().map(|write| write.tenant);
    // Pipelined in this order.
    let (started, chains) = tokio::join!(biased; db.run("BEGIN"), ChainLocks::acquire(db, tenants));
    started?;
    let mut chains = chains?;
    let are_done =
        part.len() > 1 && part.iter().all(is_independent) && apply_pipelined(db, hub, part).await?;
    let mut outcomes = Vec::with_capacity(part.len());
    let mut savepoint = "SAVEPOINT part";
    for WriteRequest { tenant, batch, .. } in part {
        let applied = if are_done {
            Ok(())
        } else {
            // A savepoint and the first change after it are pipelined, too.
            let (marked, applied) = tokio::join!(biased; db.run(savepoint), apply(db, hub, *tenant, batch));
            marked?;
            applied
        };
        let outcome = match applied {
            Ok(()) => chains.append(*tenant, batch).inspect(|()| messages.add(*tenant, batch)),
            Err(stop) if stop.is_connection_lost() || stop.is_serialization_failure() => return Err(stop),
            Err(stop) => Err(stop.into()),
        };
        savepoint = if outcome.is_ok() { "RELEASE part; SAVEPOINT part" } else { "ROLLBACK TO part" };
        outcomes.push(outcome);
    }
    if outcomes.last().is_some_and(Result::is_err) {
        db.run(savepoint).await?;
    }
    let (audit_result, message_result) =
        tokio::join!(biased; chains.insert_appended(db), messages.insert(db, hub));
    audit_result.and(message_result)?;
    match db.run("COMMIT").await {
        Ok(()) => Ok(outcomes),
        // The database reports that the commit failed, so it is certain.
        Err(error) if error.code().is_some() && !is_lost(&error) => Err(error.into()),
        Err(error) => {
            database_error(&error);
            Err(commit_uncertain().into())
        }
    }
}

/// Returns whether a batch changes nothing but calls and approvals. Of two batches that change the same one, one fails,
/// so such batches can be applied in any order.
fn is_independent(write: &WriteRequest) -> bool {
    let is_independent_change = |change: &StoreChange| {
        matches!(
            change,
            StoreChange::InsertCall(_)
                | StoreChange::StartCall { .. }
                | StoreChange::FinishCall { .. }
                | StoreChange::EditArguments { .. }
                | StoreChange::InsertApproval(_)
                | StoreChange::DecideApproval { .. }
                | StoreChange::ConsumeApproval { .. }
                | StoreChange::RequireVersions(_)
                | StoreChange::RequireUnusedName { .. }
        )
    };
    write.batch.changes.iter().all(is_independent_change) && write.batch.audit.iter().all(is_storable)
}

/// Applies all batches, pipelined, most of them grouped into a few statements. Returns whether they are applied: if one
/// of them fails, none is.
async fn apply_pipelined(
    db: &DbConnection,
    hub: Option<&str>,
    part: &[WriteRequest],
) -> Result<bool, StoreFailure> {
    let mut grouped = GroupedCalls::default();
    let mut running: Vec<_> = part
        .iter()
        .filter(|WriteRequest { tenant, batch, .. }| !grouped.add(*tenant, batch))
        .map(|WriteRequest { tenant, batch, .. }| Some(Box::pin(apply(db, hub, *tenant, batch))))
        .collect();
    let mut failure = None;
    let others = poll_fn(|context| {
        for one in &mut running {
            if let Some(Poll::Ready(result)) = one.as_mut().map(|one| one.as_mut().poll(context)) {
                *one = None;
                failure = failure.take().or(result.err());
            }
        }
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    });
    let (marked, grouped_result, ()) =
        tokio::join!(biased; db.run("SAVEPOINT part"), grouped.apply(db, hub), others);
    marked?;
    match grouped_result.and_then(|is_done| failure.map_or(Ok(is_done), Err)) {
        Ok(true) => Ok(true),
        Err(stop) if stop.is_connection_lost() || stop.is_serialization_failure() => Err(stop),
        Ok(false) | Err(_) => {
            db.run("ROLLBACK TO part; RELEASE part").await?;
            Ok(false)
        }
    }
}
