//! Grouped changes of calls in the PostgreSQL store: many calls that start or finish in one statement. They are most of
//! the writes of a busy hub.

use std::collections::BTreeSet;

use linchpin_hub_core::id::{CallId, TenantId};
use linchpin_hub_core::store::{Batch, CallOutcome, CallRecord, DocumentKey, DocumentKind, StoreChange};

use super::connection::{DbConnection, Values};
use super::{QueryExecutor as _, StoreFailure};
use crate::common::{to_integer, to_millis};

const SELECT_MISMATCHES: &str = "SELECT 1 FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[])
        AS wanted (tenant, kind, id, version)
    WHERE NOT EXISTS (SELECT 1 FROM documents AS found WHERE found.tenant = wanted.tenant
        AND found.kind = wanted.kind AND found.id = wanted.id AND found.version = wanted.version) LIMIT 1";
const SELECT_NAMED: &str = "SELECT 1 FROM documents JOIN unnest($1::TEXT[], $2::TEXT[], $3::TEXT[])
        AS unused (tenant, kind, name) USING (tenant, kind, name) LIMIT 1";
const INSERT_CALLS: &str = "INSERT INTO calls (tenant, id, server, tool, subject, status, digest, arguments, result, error,
        created, started, completed, hub)
    SELECT opened.*, $14 FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::TEXT[],
        $7::BYTEA[], $8::BYTEA[], $9::BYTEA[], $10::BYTEA[], $11::BIGINT[], $12::BIGINT[], $13::BIGINT[]) AS opened
    ON CONFLICT (tenant, id) DO NOTHING";
const FINISH_CALLS: &str = "UPDATE calls SET status = over.status, result = over.result, error = over.error,
        completed = over.at, arguments = CASE WHEN over.keeps THEN arguments END
    FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BYTEA[], $5::BYTEA[], $6::BIGINT[], $7::BOOLEAN[])
        AS over (tenant, id, status, result, error, at, keeps)
    WHERE calls.tenant = over.tenant AND calls.id = over.id AND calls.status IN ('pending', 'running')";

/// Maximum size in bytes of a call that is grouped with others.
const MAX_GROUPED_CALL_BYTES: usize = 64 << 10;

/// Calls that start or finish in several batches, written together: one statement for all that start, and one for all
/// that finish.
#[derive(Default)]
pub(super) struct GroupedCalls<'a> {
    required_versions: BTreeSet<(TenantId, &'a DocumentKey, u64)>,
    unused_names: Vec<(TenantId, DocumentKind, &'a str)>,
    inserted: Vec<(TenantId, &'a CallRecord)>,
    finished: Vec<(TenantId, CallId, &'a CallOutcome)>,
}

impl<'a> GroupedCalls<'a> {
    /// Adds a batch, and returns whether it was added: a batch with other changes or a large call is not.
    pub(super) fn add(&mut self, tenant: TenantId, batch: &'a Batch) -> bool {
        let size = |all: &[&Option<Vec<u8>>]| all.iter().copied().flatten().map(Vec::len).sum::<usize>();
        let is_groupable = |change: &StoreChange| match change {
            StoreChange::RequireVersions(_) | StoreChange::RequireUnusedName { .. } => true,
            StoreChange::InsertCall(call) => {
                size(&[&call.arguments, &call.result, &call.error]) <= MAX_GROUPED_CALL_BYTES
            }
            StoreChange::FinishCall { outcome, .. } => {
                size(&[&outcome.result, &outcome.error]) <= MAX_GROUPED_CALL_BYTES
            }
            _ => false,
        };
        if !batch.changes.iter().all(is_groupable) {
            return false;
        }
        for change in &batch.changes {
            match change {
                StoreChange::RequireVersions(all) => {
                    self.required_versions.extend(all.iter().map(|(key, version)| (tenant, key, *version)));
                }
                StoreChange::RequireUnusedName { kind, name } => {
                    self.unused_names.push((tenant, *kind, name));
                }
                StoreChange::InsertCall(call) => self.inserted.push((tenant, call)),
                StoreChange::FinishCall { call, outcome } => self.finished.push((tenant, *call, outcome)),
                _ => {}
            }
        }
        true
    }

    /// Applies the grouped changes of calls, and returns whether all of them succeeded. Which one failed is not known.
    pub(super) async fn apply(&self, db: &DbConnection, hub: Option<&str>) -> Result<bool, StoreFailure> {
        // All statements are prepared, so they are pipelined in this order.
        db.prepare_all([SELECT_MISMATCHES, SELECT_NAMED, INSERT_CALLS, FINISH_CALLS]).await?;
        let (matched, unused, inserted, finished) = tokio::join!(
            biased;
            self.versions_match(db),
            self.names_are_unused(db),
            self.insert_calls(db, hub),
            self.finish_calls(db),
        );
        Ok(matched? & unused? & inserted? & finished?)
    }

    async fn versions_match(&self, db: &DbConnection) -> Result<bool, StoreFailure> {
        if self.required_versions.is_empty() {
            return Ok(true);
        }
        let tenants: Vec<_> = self.required_versions.iter().map(|(tenant, ..)| tenant.to_string()).collect();
        let kinds: Vec<_> = self.required_versions.iter().map(|(_, key, _)| key.kind.name()).collect();
        let ids: Vec<_> = self.required_versions.iter().map(|(_, key, _)| &key.id).collect();
        let versions: Vec<_> =
            self.required_versions.iter().map(|(.., version)| to_integer(*version)).collect();
        Ok(db.query(SELECT_MISMATCHES, &[&tenants, &kinds, &ids, &versions]).await?.is_empty())
    }

    async fn names_are_unused(&self, db: &DbConnection) -> Result<bool, StoreFailure> {
        if self.unused_names.is_empty() {
            return Ok(true);
        }
        let tenants: Vec<_> = self.unused_names.iter().map(|(tenant, ..)| tenant.to_string()).collect();
        let kinds: Vec<_> = self.unused_names.iter().map(|(_, kind, _)| kind.name()).collect();
        let names: Vec<_> = self.unused_names.iter().map(|(.., name)| *name).collect();
        Ok(db.query(SELECT_NAMED, &[&tenants, &kinds, &names]).await?.is_empty())
    }

    async fn insert_calls(&self, db: &DbConnection, hub: Option<&str>) -> Result<bool, StoreFailure> {
        let all = &self.inserted;
        if all.is_empty() {
            return Ok(true);
        }
        let texts = |text: fn(&(TenantId, &CallRecord)) -> String| all.iter().map(text).collect::<Vec<_>>();
        let [tenants, ids, servers] = [
            texts(|(tenant, _)| tenant.to_string()),
            texts(|(_, call)| call.id.to_string()),
            texts(|(_, call)| call.server.to_string()),
        ];
        let tools: Vec<_> = all.iter().map(|(_, call)| &call.tool).collect();
        let subjects: Vec<_> = all.iter().map(|(_, call)| &call.subject).collect();
        let statuses: Vec<_> = all.iter().map(|(_, call)| call.status.name()).collect();
        let digests: Vec<_> = all.iter().map(|(_, call)| &call.digest.bytes()[..]).collect();
        let arguments: Vec<_> = all.iter().map(|(_, call)| &call.arguments).collect();
        let results: Vec<_> = all.iter().map(|(_, call)| &call.result).collect();
        let errors: Vec<_> = all.iter().map(|(_, call)| &call.error).collect();
        let created: Vec<_> = all.iter().map(|(_, call)| to_millis(call.created)).collect();
        let started: Vec<_> = all.iter().map(|(_, call)| call.started.map(to_millis)).collect();
        let completed: Vec<_> = all.iter().map(|(_, call)| call.completed.map(to_millis)).collect();
        let values: Values<'_> = &[
            &tenants, &ids, &servers, &tools, &subjects, &statuses, &digests, &arguments, &results, &errors,
            &created, &started, &completed, &hub,
        ];
        Ok(db.execute(INSERT_CALLS, values).await? == all.len() as u64)
    }

    async fn finish_calls(&self, db: &DbConnection) -> Result<bool, StoreFailure> {
        let all = &self.finished;
        if all.is_empty() {
            return Ok(true);
        }
        let tenants: Vec<_> = all.iter().map(|(tenant, ..)| tenant.to_string()).collect();
        let ids: Vec<_> = all.iter().map(|(_, call, _)| call.to_string()).collect();
        let statuses: Vec<_> = all.iter().map(|(.., outcome)| outcome.status.name()).collect();
        let results: Vec<_> = all.iter().map(|(.., outcome)| &outcome.result).collect();
        let errors: Vec<_> = all.iter().map(|(.., outcome)| &outcome.error).collect();
        let times: Vec<_> = all.iter().map(|(.., outcome)| to_millis(outcome.at)).collect();
        let retains_arguments: Vec<_> = all.iter().map(|(.., outcome)| outcome.retains_arguments).collect();
        let values: Values<'_> = &[&tenants, &ids, &statuses, &results, &errors, &times, &retains_arguments];
        Ok(db.execute(FINISH_CALLS, values).await? == all.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::tests::{database_with_many_rows, query_plan};

    #[tokio::test]
    async fn what_is_meant_is_found_by_its_key() {
        let db = database_with_many_rows(TenantId::from_u128(1)).await;
        db.run("SET plan_cache_mode = force_generic_plan").await.unwrap();
        let (texts, bytes, times, flags) =
            (vec!["x"; 64], vec![None::<Vec<u8>>; 64], vec![0_i64; 64], vec![true; 64]);
        let finish_plan =
            query_plan(&db, FINISH_CALLS, &[&texts, &texts, &texts, &bytes, &bytes, &times, &flags]).await;
        assert!(finish_plan.contains("calls_pkey") && !finish_plan.contains("Seq Scan"), "{finish_plan}");
        let match_plan = query_plan(&db, SELECT_MISMATCHES, &[&texts, &texts, &texts, &times]).await;
        assert!(match_plan.contains("documents_pkey") && !match_plan.contains("Seq Scan"), "{match_plan}");
    }
}
