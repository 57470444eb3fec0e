//! Database of the schema with text keys: it is migrated when it is opened, with everything in it.
//!
//! `fixtures/text_keys/hub.db` has two tenants with documents of every kind, calls of every status with an approval each,
//! 21 audit entries, a checkpoint and an empty token bucket. `snapshot.jsonl` is its export by the hub that wrote it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use jiff::Timestamp;
use linchpin_hub_core::audit::{AuditEntry, AuditSigner, ChainVerifier};
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::rate_limit::RateLimit;
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, ApprovalStatus, Batch, CallFilter, CallOutcome, CallRecord, CallStatus,
    PageRequest, SnapshotItem, Store, StoreChange,
};
use linchpin_hub_store::Sqlite;
use tempfile::TempDir;
use tokio::sync::mpsc::channel;

const DATABASE: &[u8] = include_bytes!("fixtures/text_keys/hub.db");
const SNAPSHOT: &str = include_str!("fixtures/text_keys/snapshot.jsonl");
const TENANTS: [TenantId; 2] = [TenantId::from_u128(1), TenantId::from_u128(2)];
const FIRST_PAGE: PageRequest = PageRequest { after: None, limit: 100 };

fn open_fixture() -> (Box<dyn Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    std::fs::write(&path, DATABASE).unwrap();
    (Box::new(Sqlite::open(&path).unwrap()), folder)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

async fn call(store: &dyn Store, tenant: TenantId, status: CallStatus) -> CallRecord {
    let filter = CallFilter { status: Some(status), ..CallFilter::default() };
    let found = store.calls(tenant, &filter, &FIRST_PAGE).await.unwrap().items;
    assert_eq!(found.len(), 1, "{status:?}");
    found.into_iter().next().unwrap()
}

#[tokio::test]
async fn everything_is_found() {
    let (store, _folder) = open_fixture();
    let expected: Vec<SnapshotItem> =
        SNAPSHOT.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (to, mut from) = channel(expected.len() + 1);
    store.export_snapshot(to).await.unwrap();
    let mut found = Vec::new();
    while let Some(item) = from.recv().await {
        found.push(item);
    }
    assert_eq!(found, expected);
    assert_eq!(store.tenants().await.unwrap(), TENANTS);
    for tenant in TENANTS {
        for status in CallStatus::ALL {
            let listed = call(&*store, tenant, status).await;
            let whole = store.call(tenant, listed.id).await.unwrap().unwrap();
            assert_eq!(whole.arguments.as_ref().map(Vec::len), Some(256));
            assert_eq!(listed, CallRecord { arguments: None, result: None, ..whole });
        }
        let all = store.calls(tenant, &CallFilter::default(), &FIRST_PAGE).await.unwrap().items;
        assert!(all.len() == CallStatus::ALL.len() && all.is_sorted_by(|one, other| one.id > other.id));
    }
}

#[tokio::test]
async fn the_audit_is_intact_and_continues() {
    let (store, _folder) = open_fixture();
    let signer = AuditSigner::new(&[1; 32]);
    for tenant in TENANTS {
        let entry = AuditEntry::new(at(60), "user:1", "call.intent").with("call", 1);
        store.commit(tenant, Batch::new().audit(entry)).await.unwrap();
        let checkpoint = store.checkpoint(tenant).await.unwrap().unwrap();
        assert!(checkpoint.is_signed_by(signer.public_key()));
        let mut verifier = ChainVerifier::new(tenant, Some(checkpoint.head));
        for entry in store.audit_entries(tenant, 0, 100).await.unwrap() {
            verifier.verify_entry(&entry).unwrap();
        }
        let head = verifier.finish().unwrap();
        assert_eq!((head.number, head), (22, store.audit_head(tenant).await.unwrap()));
    }
}

#[tokio::test]
async fn calls_approvals_and_rate_limits_continue() {
    let (store, _folder) = open_fixture();
    for tenant in TENANTS {
        let running = call(&*store, tenant, CallStatus::Running).await;
        assert_eq!(store.abandoned_calls(tenant).await.unwrap(), std::slice::from_ref(&running));
        let outcome = CallOutcome {
            status: CallStatus::Unknown,
            result: None,
            error: None,
            at: at(70),
            retains_arguments: true,
        };
        let finish = || StoreChange::FinishCall { call: running.id, outcome: outcome.clone() };
        store.commit(tenant, Batch::new().change(finish())).await.unwrap();
        let again = store.commit(tenant, Batch::new().change(finish())).await.unwrap_err();
        assert_eq!(again.code(), "call_state_conflict");

        let filter = ApprovalFilter { decision: Some(ApprovalStatus::Open), ..ApprovalFilter::default() };
        let open: Vec<Approval> = store.approvals(tenant, &filter, &FIRST_PAGE).await.unwrap().items;
        let pending = call(&*store, tenant, CallStatus::Pending).await;
        assert_eq!(open.iter().map(|approval| approval.call).collect::<Vec<_>>(), [pending.id]);
        let decide = StoreChange::DecideApproval {
            approval: open[0].id,
            decision: ApprovalStatus::Approved,
            decided_by: "user:1".into(),
            at: at(80),
            digest: None,
        };
        let consume =
            StoreChange::ConsumeApproval { approval: open[0].id, digest: open[0].digest, at: at(80) };
        let start = StoreChange::StartCall { call: pending.id, at: at(80) };
        store.commit(tenant, Batch::new().change(decide).change(consume).change(start)).await.unwrap();
        assert_eq!(call(&*store, tenant, CallStatus::Running).await.id, pending.id);

        let take = StoreChange::ConsumeRate {
            bucket: "agent:1".into(),
            rate: RateLimit { burst: 7, per_minute: 1 },
            at: at(0),
        };
        let error = store.commit(tenant, Batch::new().change(take)).await.unwrap_err();
        assert_eq!(error.code(), "rate_limited");
    }
}
