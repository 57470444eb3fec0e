//! Writer of the `SQLite` store: commits batches in groups. While one group is written, the next one queues, so many
//! concurrent writers cost little more than one.

use std::sync::Arc;

use linchpin_hub_core::Result;
use linchpin_hub_core::id::{CallId, TenantId};
use linchpin_hub_core::rate_limit::{TokenBucket, rate_limited};
use linchpin_hub_core::store::{Batch, CallOutcome, StoreChange};
use rusqlite::Connection;

use super::audit::{INSERT_ENTRY, entry_values};
use super::errors::{database_error, is_disk_failure};
use super::memory::{ActiveCall, Memory};
use super::statements::{PreparedStatements, check};
use super::{audit, calls, documents};
use crate::common::calls::outcome_values;
use crate::common::limits::{prune_buckets, save_bucket};
use crate::common::refusal::{Refusal, limit_exceeded};
use crate::common::value::Value;
use crate::common::{Statement, store_closed};

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const SAVEPOINT: &str = "SAVEPOINT part";
const ROLLBACK_PART: &str = "ROLLBACK TO part";
const RELEASE_PART: &str = "RELEASE part";
/// Number that changes when another connection has written to the file.
const DATA_VERSION: &str = "PRAGMA data_version";
const FINISH_CALL: &str = "UPDATE calls SET status = $2, result = $3, error = $4, completed = $5,
         arguments = CASE WHEN $6 THEN arguments END, hub = NULL
     WHERE number = $1 AND status IN ('pending', 'running')";

/// Writer of one group of batches, or of one job.
pub(super) struct Writer<'a> {
    db: &'a Connection,
    statements: PreparedStatements<'a>,
    memory: &'a mut Memory,
    /// Id of this hub process.
    hub: Arc<str>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(db: &'a Connection, hub: Arc<str>, memory: &'a mut Memory) -> Self {
        Writer { db, statements: PreparedStatements::new(db), memory, hub }
    }

    /// Runs a job in a transaction of its own.
    pub(super) fn run(&mut self, job: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        self.transact(|writer| job(writer.db))?;
        *self.memory = Memory::default();
        Ok(())
    }

    /// Commits a group of batches in one transaction. A batch that fails is rolled back alone.
    pub(super) fn commit(&mut self, group: &mut [(TenantId, Batch)]) -> Result<Vec<Result<()>>> {
        self.transact(|writer| {
            let outcomes = if let Some(outcomes) = writer.apply_together(group)? {
                outcomes
            } else {
                writer.execute(ROLLBACK)?;
                writer.execute(BEGIN)?;
                writer.apply_one_by_one(group)?
            };
            for ((tenant, batch), outcome) in group.iter_mut().zip(&outcomes) {
                if outcome.is_ok() {
                    writer.append_entries(*tenant, batch)?;
                }
            }
            writer.save_buckets()?;
            writer.memory.limit_buckets();
            Ok(outcomes)
        })
    }

    /// Runs work in a transaction. If it fails, nothing of it is stored.
    fn transact<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let done = self.begin().and_then(|()| work(self)).and_then(|done| {
            self.execute(COMMIT)?;
            Ok(done)
        });
        if done.is_err() {
            *self.memory = Memory::default();
            if !self.db.is_autocommit() {
                let _ = self.execute(ROLLBACK); // logged
            }
        }
        done
    }

    /// Begins a transaction, unless one has begun. No other connection can write until it ends, so the memory is valid
    /// until then.
    fn begin(&mut self) -> Result<()> {
        if self.db.is_autocommit() {
            self.execute(BEGIN)?;
        }
        let version = self.statements.integer(DATA_VERSION).map_err(|error| database_error(&error))?;
        self.memory.set_data_version(version);
        Ok(())
    }

    fn execute(&mut self, sql: &'static str) -> Result<()> {
        self.statements.execute(sql, &[]).map(drop).map_err(|error| database_error(&error))
    }

    /// Applies all batches without savepoints. Returns `None` if a batch failed after it had changed something.
    fn apply_together(&mut self, group: &[(TenantId, Batch)]) -> Result<Option<Vec<Result<()>>>> {
        let mut outcomes = Vec::with_capacity(group.len());
        for (tenant, batch) in group {
            let tenant = self.memory.tenant(self.db, *tenant)?;
            self.statements.has_changed = false;
            let outcome = self.apply(tenant, batch);
            if outcome.is_err() && self.statements.has_changed {
                self.check_transaction(&outcome)?;
                *self.memory = Memory::default();
                return Ok(None);
            }
            self.check_transaction(&outcome)?;
            outcomes.push(outcome);
        }
        Ok(Some(outcomes))
    }

    /// Applies all batches, each with a savepoint to which it is rolled back if it fails.
    fn apply_one_by_one(&mut self, group: &[(TenantId, Batch)]) -> Result<Vec<Result<()>>> {
        let mut outcomes = Vec::with_capacity(group.len());
        for (tenant, batch) in group {
            let tenant = self.memory.tenant(self.db, *tenant)?;
            self.execute(SAVEPOINT)?;
            let outcome = self.apply(tenant, batch).and_then(|()| self.save_buckets());
            self.check_transaction(&outcome)?;
            if outcome.is_err() {
                self.execute(ROLLBACK_PART)?;
                *self.memory = Memory::default();
            }
            self.execute(RELEASE_PART)?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Returns the error of a batch if the whole transaction has failed with it: `SQLite` has rolled it back, or the
    /// disk has failed.
    fn check_transaction(&self, outcome: &Result<()>) -> Result<()> {
        match outcome {
            Err(error) if self.db.is_autocommit() || is_disk_failure(error) => Err(error.clone()),
            Ok(()) if self.db.is_autocommit() => Err(store_closed()),
            _ => Ok(()),
        }
    }

    /// Applies the changes of a batch.
    fn apply(&mut self, tenant: i64, batch: &Batch) -> Result<()> {
        // Token buckets change with the whole batch, or not at all.
        let mut taken: Vec<((i64, String), TokenBucket)> = Vec::new();
        for change in &batch.changes {
            match change {
                StoreChange::ConsumeRate { bucket, rate, at } => {
                    let key = (tenant, bucket.clone());
                    let known = taken.iter().rev().find(|(taken, _)| *taken == key);
                    let found = match known {
                        Some((_, bucket)) => Some(*bucket),
                        None => self.memory.bucket(self.db, &key)?,
                    };
                    let mut state = found.unwrap_or_else(|| TokenBucket::full(*rate, *at));
                    state.take(*rate, *at).map_err(|wait| rate_limited(bucket, wait))?;
                    taken.push((key, state));
                }
                other => self.apply_change(tenant, other)?,
            }
        }
        for (key, bucket) in taken {
            self.memory.set_bucket(key, bucket);
        }
        Ok(())
    }

    fn apply_change(&mut self, tenant: i64, change: &StoreChange) -> Result<()> {
        match change {
            StoreChange::RequireExists(key) => documents::require_exists(self.db, tenant, key),
            StoreChange::RequireVersions(all) => documents::require_versions(self.db, tenant, all),
            StoreChange::RequireUnusedName { kind, name } => {
                documents::require_unused_name(self.db, tenant, *kind, name)
            }
            StoreChange::RequireConcurrency { scope, max_calls } => {
                let count = self.memory.count_calls(self.db, tenant, scope)?;
                let has_room = count < usize::try_from(*max_calls).unwrap_or(usize::MAX);
                has_room.then_some(()).ok_or_else(|| limit_exceeded(scope, *max_calls))
            }
            StoreChange::InsertCall(call) => {
                self.apply_statement(tenant, change)?;
                if let Some(calls) = self.memory.known_calls(tenant)
                    && let Some(active) = ActiveCall::of(call, self.db.last_insert_rowid())
                {
                    calls.insert(call.id, active);
                }
                Ok(())
            }
            StoreChange::StartCall { call, .. } => {
                self.apply_statement(tenant, change)?;
                if let Some(calls) = self.memory.known_calls(tenant)
                    && let Some(active) = calls.get_mut(call)
                {
                    active.is_running = true;
                }
                Ok(())
            }
            StoreChange::FinishCall { call, outcome } => self.finish_call(tenant, *call, outcome),
            StoreChange::PruneCalls { before, max_calls } => {
                self.statements.has_changed = true;
                calls::prune(self.db, tenant, *before, *max_calls)?;
                self.save_buckets()?;
                self.memory.forget_buckets();
                self.execute_statement(tenant, &prune_buckets(tenant.into(), *before))
            }
            StoreChange::RemoveSealedEntries { first, last } => {
                self.statements.has_changed = true;
                audit::seal(self.db, tenant, *first, *last)
            }
            _ => self.apply_statement(tenant, change),
        }
    }

    fn apply_statement(&mut self, tenant: i64, change: &StoreChange) -> Result<()> {
        let hub = self.hub.clone();
        match Statement::of(change, tenant.into(), Some(&*hub)) {
            Some(statement) => self.execute_statement(tenant, &statement),
            None => Ok(()),
        }
    }

    fn execute_statement(&mut self, tenant: i64, statement: &Statement<'_>) -> Result<()> {
        let changed = self.statements.execute(statement.sql, &statement.values);
        check(self.db, tenant, changed, &statement.refusal)
    }

    fn finish_call(&mut self, tenant: i64, call: CallId, outcome: &CallOutcome) -> Result<()> {
        let found = self.memory.active_calls(self.db, tenant)?.remove(&call);
        let changed = match found {
            Some(active) => {
                let [status, result, error, at, retains] = outcome_values(outcome);
                let values: [Value<'_>; 6] = [active.number.into(), status, result, error, at, retains];
                self.statements.execute(FINISH_CALL, &values)
            }
            None => Ok(0),
        };
        check(self.db, tenant, changed, &Refusal::Call(call))
    }

    /// Appends the audit entries of a batch to the chain of its tenant.
    fn append_entries(&mut self, owner: TenantId, batch: &mut Batch) -> Result<()> {
        if batch.audit.is_empty() {
            return Ok(());
        }
        let tenant = self.memory.tenant(self.db, owner)?;
        let head = self.memory.head(self.db, (tenant, owner), batch)?;
        for entry in std::mem::take(&mut batch.audit) {
            let entry = head.append_authentic(entry, batch.authenticator.as_deref());
            let inserted = self.statements.execute(INSERT_ENTRY, &entry_values(tenant, &entry));
            inserted.map_err(|error| database_error(&error))?;
        }
        Ok(())
    }

    /// Stores the changed token buckets, each once for all batches of the group.
    fn save_buckets(&mut self) -> Result<()> {
        for ((tenant, id), bucket) in self.memory.take_changed_buckets() {
            self.execute_statement(tenant, &save_bucket(tenant.into(), &id, &bucket))?;
        }
        Ok(())
    }
}
