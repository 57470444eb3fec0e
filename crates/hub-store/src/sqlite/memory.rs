//! Memory of the `SQLite` writer: what it knows of the database, so that it does not read it again for each batch. It is
//! forgotten when another process has written to the file, or when a transaction was not committed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use linchpin_hub_core::Result;
use linchpin_hub_core::audit::ChainHead;
use linchpin_hub_core::id::{CallId, ServerId, TenantId};
use linchpin_hub_core::rate_limit::TokenBucket;
use linchpin_hub_core::store::{Batch, CallRecord, CallStatus, CountedCalls};
use rusqlite::Connection;

use super::statements::{query, query_one};
use super::{audit, tenants};
use crate::common::limits::SELECT_BUCKET;
use crate::common::rows::{StoredRow as _, read_bucket};

/// SQL query for the pending and running calls of a tenant.
const SELECT_ACTIVE: &str = "SELECT number, id, server, subject, status = 'running'
     FROM calls INDEXED BY calls_by_status
     WHERE status <> 'success' AND tenant = $1 AND status IN ('pending', 'running')";
/// Maximum number of token buckets in memory.
const MAX_BUCKETS: usize = 10_000;

/// Pending or running call.
pub(super) struct ActiveCall {
    /// Number of the row.
    pub(super) number: i64,
    server: ServerId,
    subject: String,
    pub(super) is_running: bool,
}

impl ActiveCall {
    /// Creates the entry of a new call, unless its status is final.
    pub(super) fn of(call: &CallRecord, number: i64) -> Option<Self> {
        let is_running = call.status == CallStatus::Running;
        let (server, subject) = (call.server, call.subject.clone());
        (!call.status.is_final()).then_some(ActiveCall { number, server, subject, is_running })
    }

    fn counts(&self, scope: &CountedCalls) -> bool {
        match scope {
            CountedCalls::Server(server) => self.is_running && self.server == *server,
            CountedCalls::Subject(subject) => self.is_running && self.subject == *subject,
            CountedCalls::Pending(subject) => !self.is_running && self.subject == *subject,
        }
    }
}

/// Known state of the database, by the number of the tenant.
#[derive(Default)]
pub(super) struct Memory {
    /// Version of the data for which the memory is valid: it changes when another connection has written to the file.
    data_version: Option<i64>,
    tenants: HashMap<TenantId, i64>,
    heads: HashMap<i64, ChainHead>,
    active_calls: HashMap<i64, HashMap<CallId, ActiveCall>>,
    buckets: HashMap<(i64, String), TokenBucket>,
    /// Buckets that are not stored yet.
    changed_buckets: HashSet<(i64, String)>,
}

impl Memory {
    /// Forgets everything if another connection has written to the file since this was last called.
    pub(super) fn set_data_version(&mut self, version: i64) {
        if self.data_version != Some(version) {
            *self = Memory { data_version: Some(version), ..Memory::default() };
        }
    }

    /// Returns the number of a tenant. A new tenant is stored.
    pub(super) fn tenant(&mut self, db: &Connection, tenant: TenantId) -> Result<i64> {
        if let Some(number) = self.tenants.get(&tenant) {
            return Ok(*number);
        }
        let number = tenants::number_or_insert(db, tenant)?;
        self.tenants.insert(tenant, number);
        Ok(number)
    }

    /// Returns the chain head of a tenant, to which the entries of a batch are appended.
    pub(super) fn head(
        &mut self,
        db: &Connection,
        (tenant, owner): (i64, TenantId),
        batch: &Batch,
    ) -> Result<&mut ChainHead> {
        Ok(match self.heads.entry(tenant) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let stored = audit::stored_head(db, tenant, owner)?;
                stored.check(batch)?;
                unknown.insert(stored.head)
            }
        })
    }

    /// Returns the pending and running calls of a tenant.
    pub(super) fn active_calls(
        &mut self,
        db: &Connection,
        tenant: i64,
    ) -> Result<&mut HashMap<CallId, ActiveCall>> {
        Ok(match self.active_calls.entry(tenant) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let found = query(db, SELECT_ACTIVE, &[tenant.into()], |row| {
                    let call = ActiveCall {
                        number: row.get(0)?,
                        server: ServerId::from_u128(row.id(2)?),
                        subject: row.get(3)?,
                        is_running: row.get(4)?,
                    };
                    Ok((CallId::from_u128(row.id(1)?), call))
                })?;
                unknown.insert(found.into_iter().collect())
            }
        })
    }

    /// Returns the pending and running calls of a tenant, if they were read before.
    pub(super) fn known_calls(&mut self, tenant: i64) -> Option<&mut HashMap<CallId, ActiveCall>> {
        self.active_calls.get_mut(&tenant)
    }

    /// Counts the pending or running calls of a scope.
    pub(super) fn count_calls(
        &mut self,
        db: &Connection,
        tenant: i64,
        scope: &CountedCalls,
    ) -> Result<usize> {
        Ok(self.active_calls(db, tenant)?.values().filter(|call| call.counts(scope)).count())
    }

    /// Returns a token bucket, if it was used before.
    pub(super) fn bucket(&mut self, db: &Connection, key: &(i64, String)) -> Result<Option<TokenBucket>> {
        if let Some(bucket) = self.buckets.get(key) {
            return Ok(Some(*bucket));
        }
        query_one(db, SELECT_BUCKET, &[key.0.into(), (&key.1).into()], |row| read_bucket(row))
    }

    /// Remembers a changed token bucket.
    pub(super) fn set_bucket(&mut self, key: (i64, String), bucket: TokenBucket) {
        self.changed_buckets.insert(key.clone());
        self.buckets.insert(key, bucket);
    }

    /// Takes the token buckets that are not stored yet.
    pub(super) fn take_changed_buckets(&mut self) -> Vec<((i64, String), TokenBucket)> {
        let changed = self.changed_buckets.drain().filter_map(|key| {
            let bucket = *self.buckets.get(&key)?;
            Some((key, bucket))
        });
        changed.collect()
    }

    /// Forgets the token buckets, all of which are stored.
    pub(super) fn forget_buckets(&mut self) {
        self.buckets.clear();
    }

    /// Forgets the token buckets if they are too many.
    pub(super) fn limit_buckets(&mut self) {
        if self.buckets.len() > MAX_BUCKETS {
            self.forget_buckets();
        }
    }
}
