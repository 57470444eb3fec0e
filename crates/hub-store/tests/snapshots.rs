//! Snapshots: export from one store and import into another, for all pairs of databases.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::audit::{AuditEntry, AuditSigner};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, ServerId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalStatus, Batch, CachedStore, CallRecord, CallStatus, Document, DocumentKey,
    DocumentKind, SnapshotItem, SnapshotValue, Store, StoreChange,
};
use linchpin_hub_store::{Postgres, Sqlite};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

const TENANTS: [TenantId; 2] = [TenantId::from_u128(1), TenantId::from_u128(2)];
const ENTRIES: usize = 450;
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

fn sqlite() -> (Arc<dyn Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(CachedStore::new(Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap()))), folder)
}

async fn postgres() -> Arc<dyn Store> {
    let server = test_postgres::server();
    Arc::new(Postgres::open(&server.url(&server.create_database())).await.unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Fills a store with data of every kind.
async fn fill(store: &dyn Store) {
    let signer = AuditSigner::new(&[1; 32]);
    for (tenant, number) in TENANTS.into_iter().zip(0_u128..) {
        for kind in DocumentKind::ALL {
            let id = format!("{}-{number}", kind.name());
            let document =
                Document::new(DocumentKey::new(kind, &id), &json!({"text": "é\u{0}\"\\", "n": 7})).unwrap();
            let document = document.with_name(format!("{id} of it")).with_parent("parent");
            for version in 0..3 {
                let put = StoreChange::Put { document: document.clone(), version };
                store.commit(tenant, Batch::new().change(put)).await.unwrap();
            }
        }
        for (status, id) in CallStatus::ALL.into_iter().zip(1..) {
            let call = CallRecord {
                id: CallId::from_u128(id),
                server: ServerId::from_u128(id),
                tool: "tool".into(),
                subject: "agent:1".into(),
                status,
                digest: Digest::of("arguments").finish(),
                arguments: Some((0..=255).collect()),
                result: Some(Vec::new()),
                error: None,
                created: at(1),
                started: Some(at(2)),
                completed: status.is_final().then(|| at(3)),
            };
            let approval = Approval {
                id: ApprovalId::from_u128(id),
                call: call.id,
                digest: Digest::of("approval").finish(),
                decision: ApprovalStatus::Used,
                decided_by: Some("user:1".into()),
                created: at(0),
                expires: at(60),
                decided: None,
            };
            let batch = Batch::new()
                .change(StoreChange::InsertCall(Box::new(call)))
                .change(StoreChange::InsertApproval(approval));
            store.commit(tenant, batch).await.unwrap();
        }
        let entry = |number: usize| AuditEntry::new(at(9), "user:1", "call.intent").with("call", number);
        let entries = (0..ENTRIES).fold(Batch::new(), |batch, number| batch.audit(entry(number)));
        store.commit(tenant, entries).await.unwrap();
        let checkpoint = signer.sign(tenant, store.audit_head(tenant).await.unwrap(), at(50));
        store.commit(tenant, Batch::new().change(StoreChange::InsertCheckpoint(checkpoint))).await.unwrap();
    }
}

/// Returns the snapshot of a store, after a round trip through its serialized form.
async fn snapshot(store: &dyn Store) -> Vec<SnapshotItem> {
    let (to, mut from) = channel(1);
    let gather = async {
        let mut all: Vec<SnapshotItem> = Vec::new();
        while let Some(copied) = from.recv().await {
            all.push(serde_json::from_str(&serde_json::to_string(&copied).unwrap()).unwrap());
            assert_eq!(all.last(), Some(&copied));
        }
        all
    };
    let (copied, all) =
        tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(store.export_snapshot(to), gather) })
            .await
            .unwrap();
    copied.unwrap();
    all
}

fn channel_of(all: &[SnapshotItem]) -> Receiver<SnapshotItem> {
    let (to, from) = channel(all.len().max(1));
    for copied in all {
        to.try_send(copied.clone()).unwrap();
    }
    from
}

async fn import(store: &dyn Store, all: &[SnapshotItem], count: usize) -> Result<()> {
    tokio::time::timeout(TEST_TIMEOUT, store.import_snapshot(channel_of(all), count as u64)).await.unwrap()
}

async fn assert_copied(one: Arc<dyn Store>, other: Arc<dyn Store>) {
    fill(&*one).await;
    let all = snapshot(&*one).await;
    assert_eq!(all.len(), 2 * (DocumentKind::ALL.len() + 2 * CallStatus::ALL.len() + ENTRIES + 1));
    // An incomplete or inconsistent snapshot stores nothing.
    assert_eq!(import(&*other, &all[1..], all.len()).await.unwrap_err().code(), "snapshot_incomplete");
    let twice = [&all[..], &all[..1]].concat();
    assert!(import(&*other, &twice, twice.len()).await.is_err());
    assert_eq!(snapshot(&*other).await, []);
    import(&*other, &all, all.len()).await.unwrap();
    assert_eq!(snapshot(&*other).await, all);
    // The store is not empty any more.
    assert_eq!(import(&*other, &all, all.len()).await.unwrap_err().code(), "store_not_empty");
    assert_eq!(snapshot(&*other).await, all);
    // The audit chain continues after the imported head.
    let head = one.audit_head(TENANTS[0]).await.unwrap();
    assert_eq!(other.audit_head(TENANTS[0]).await.unwrap(), head);
    other.commit(TENANTS[0], Batch::new().audit(AuditEntry::new(at(99), "hub", "x"))).await.unwrap();
    assert_eq!(other.audit_head(TENANTS[0]).await.unwrap().number, head.number + 1);
}

#[tokio::test]
async fn from_sqlite_to_sqlite() {
    let (one, other) = (sqlite(), sqlite());
    assert_copied(one.0, other.0).await;
}

#[tokio::test]
async fn from_sqlite_to_postgres() {
    let one = sqlite();
    assert_copied(one.0, postgres().await).await;
}

#[tokio::test]
async fn from_postgres_to_sqlite() {
    let other = sqlite();
    assert_copied(postgres().await, other.0).await;
}

/// Asserts that a snapshot contains no change made during the export.
async fn assert_consistent(store: Arc<dyn Store>) {
    fill(&*store).await;
    let before = snapshot(&*store).await;
    let (to, mut from) = channel(1);
    let copy = async {
        let mut all = vec![from.recv().await.unwrap()];
        for tenant in TENANTS {
            let document = Document::new(DocumentKey::new(DocumentKind::User, "zz"), &json!({})).unwrap();
            let batch = Batch::new().change(StoreChange::Put { document, version: 0 });
            let entry = AuditEntry::new(at(99), "hub", "x");
            store
                .commit(
                    tenant,
                    batch.change(StoreChange::PruneCalls { before: at(1_000), max_calls: 100 }).audit(entry),
                )
                .await
                .unwrap();
        }
        while let Some(copied) = from.recv().await {
            all.push(copied);
        }
        all
    };
    let (copied, all) =
        tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(store.export_snapshot(to), copy) })
            .await
            .unwrap();
    copied.unwrap();
    assert_eq!(all, before);
    let after = snapshot(&*store).await;
    assert!(
        after.iter().any(
            |copied| matches!(&copied.value, SnapshotValue::Document(one) if one.document.key.id == "zz")
        )
    );
}

#[tokio::test]
async fn a_copy_of_sqlite_is_of_one_moment() {
    let store = sqlite();
    assert_consistent(store.0).await;
}

#[tokio::test]
async fn a_copy_of_postgres_is_of_one_moment() {
    assert_consistent(postgres().await).await;
}
