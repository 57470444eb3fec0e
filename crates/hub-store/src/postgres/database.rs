//! The connections to one database: one that writes and a few that read. What is written together is made sure of
//! together, as in the other store, and other hubs on the same database wait for their turn tenant by tenant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::Batch;
use linchpin_hub_core::{Error, Result, error};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::audit::Chains;
use super::link::{Connected, Link, Values, config};
use super::{Ask, Stop, apply, away, failed, is_lost, schema};
use crate::Durability;

/// How many wait for the writer before others wait for their turn to wait.
const QUEUE: usize = 1_024;
/// How many batches are made sure of at once.
const GROUP: usize = 64;
/// How many connections read.
const READERS: usize = 4;
/// How long a question, or a group, may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How a hub takes the database for itself, how often it tries, and how long it waits in between.
const CLAIM: &str = "SELECT pg_try_advisory_lock(x'6c696e6368756200'::BIGINT)";
const CLAIMS: u32 = 30;
const CLAIM_AGAIN: Duration = Duration::from_millis(100);
/// How often what was not done is tried again.
const TRIES: u32 = 5;

/// A batch, and who waits until it is sure.
struct Write {
    tenant: TenantId,
    batch: Batch,
    done: oneshot::Sender<Result<()>>,
}

/// One database.
pub(super) struct Database {
    writing: mpsc::Sender<Write>,
    readers: Vec<Link>,
    /// Whose turn it is to read.
    turn: AtomicUsize,
    /// Writes.
    task: JoinSet<()>,
    /// Holds the database for one hub, as long as it is connected.
    claim: Link,
}

impl Database {
    pub(super) async fn open(url: &str, durability: Durability) -> Result<Self> {
        let config = config(url)?;
        let synchronous = match durability {
            Durability::Process => "off",
            Durability::Power => "on",
        };
        // Whoever stands still in the middle of something does not keep the others waiting for ever.
        let greeting = format!(
            "SET synchronous_commit = {synchronous}; SET lock_timeout = '10s';
             SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed'"
        );
        let link = Link::new(config.clone(), greeting);
        schema::bring_up(&*link.get().await?).await?;
        let only_reads = || Link::new(config.clone(), "SET default_transaction_read_only = on".to_owned());
        let (writing, writes) = mpsc::channel(QUEUE);
        let mut task = JoinSet::new();
        task.spawn(write_all(link, writes));
        let readers = std::iter::repeat_with(only_reads).take(READERS).collect();
        let claim = Link::new(config, String::new());
        Ok(Database { writing, readers, turn: AtomicUsize::new(0), task, claim })
    }

    /// Takes the database for this hub alone. One that has just ended may take a moment to let it go.
    pub(super) async fn claim(&self) -> Result<()> {
        for _ in 0..CLAIMS {
            let connected = self.claim.get().await?;
            let rows = connected.query(CLAIM, &[]).await?;
            if rows.first().is_some_and(|row| row.get(0)) {
                return Ok(());
            }
            tokio::time::sleep(CLAIM_AGAIN).await;
        }
        let text = "another hub uses this database, and hubs do not share one yet: end that one first";
        Err(Error::new(error::Kind::Unavailable, "store_in_use", text))
    }

    /// Does all of a batch, or nothing of it.
    pub(super) async fn write(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let (done, result) = oneshot::channel();
        self.writing.send(Write { tenant, batch, done }).await.map_err(|_| over())?;
        result.await.map_err(|_| over())?
    }
}

/// What was taken is done; then the writer sees that there is nothing more, and ends.
impl Drop for Database {
    fn drop(&mut self) {
        self.task.detach_all();
    }
}

/// Asks one of those that read. A question does no harm when it is asked twice.
impl Ask for Database {
    async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Stop> {
        let link = &self.readers[self.turn.fetch_add(1, Ordering::Relaxed) % READERS];
        let mut is_first = true;
        loop {
            let db = link.get().await?;
            match timeout(PATIENCE, db.query(sql, values)).await {
                Ok(Err(stop)) if is_first && stop.is_lost() => {
                    link.forget(&db).await;
                    is_first = false;
                }
                Ok(answered) => return answered,
                Err(_) => {
                    link.forget(&db).await;
                    return Err(away("it does not answer").into());
                }
            }
        }
    }
}

fn over() -> Error {
    Error::new(error::Kind::Unavailable, "store_closed", "the hub is ending")
}

async fn write_all(link: Link, mut writes: mpsc::Receiver<Write>) {
    let mut group = Vec::with_capacity(GROUP);
    while writes.recv_many(&mut group, GROUP).await > 0 {
        let outcomes = write_group(&link, &group).await;
        for (Write { done, .. }, outcome) in group.drain(..).zip(outcomes) {
            let _ = done.send(outcome); // whoever asked may have gone
        }
    }
}

/// Does a group at once. What was certainly not done is tried again: one by one if others were in the way, because two
/// groups that take the same in another order would be so again.
async fn write_group(link: &Link, group: &[Write]) -> Vec<Result<()>> {
    let (mut outcomes, mut size, mut tries) = (Vec::with_capacity(group.len()), group.len(), TRIES);
    while outcomes.len() < group.len() {
        let rest = &group[outcomes.len()..];
        let part = &rest[..size.min(rest.len())];
        match write_part(link, part).await {
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
async fn write_part(link: &Link, part: &[Write]) -> Result<Vec<Result<()>>, Stop> {
    let db = link.get().await?;
    let Ok(outcomes) = timeout(PATIENCE, transact(&db, part)).await else {
        link.forget(&db).await;
        return Err(unsure().into());
    };
    if outcomes.is_err() && !matches!(timeout(PATIENCE, db.run("ROLLBACK")).await, Ok(Ok(()))) {
        link.forget(&db).await;
    }
    outcomes
}

fn unsure() -> Error {
    let text = "the database was lost while this was kept, and nobody knows whether it is: look before you try again";
    Error::new(error::Kind::Unavailable, "store_unavailable", text)
}

/// Does some batches. What cannot be done is undone alone.
async fn transact(db: &Connected, part: &[Write]) -> Result<Vec<Result<()>>, Stop> {
    let tenants = part.iter().map(|write| write.tenant);
    // Sent without waiting for one another, in this order. So are a mark and the first change after it.
    let (begun, chains) = tokio::join!(biased; db.run("BEGIN"), Chains::take(db, tenants));
    begun?;
    let mut chains = chains?;
    let mut outcomes = Vec::with_capacity(part.len());
    let mut mark = "SAVEPOINT part";
    for Write { tenant, batch, .. } in part {
        let (marked, done) = tokio::join!(biased; db.run(mark), apply(db, *tenant, batch));
        marked?;
        let outcome = match done {
            Ok(()) => chains.append(*tenant, &batch.audit),
            Err(stop) if stop.is_lost() || stop.is_clash() => return Err(stop),
            Err(stop) => Err(stop.into()),
        };
        mark = if outcome.is_ok() { "RELEASE part; SAVEPOINT part" } else { "ROLLBACK TO part" };
        outcomes.push(outcome);
    }
    if outcomes.last().is_some_and(Result::is_err) {
        db.run(mark).await?;
    }
    chains.keep(db).await?;
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
