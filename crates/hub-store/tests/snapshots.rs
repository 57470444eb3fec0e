//! Snapshots: export from one store and import into another, for all pairs of databases.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use linchpin_hub_core::Result;
use linchpin_hub_core::audit::{Entry, Signer};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, ServerId, TenantId};
use linchpin_hub_core::store::{
    Approval, Batch, Cached, Call, Change, Copied, Decision, Document, Key, Kind, Status, Store, What,
};
use linchpin_hub_store::{Postgres, Sqlite};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

const TENANTS: [TenantId; 2] = [TenantId::fixed(1), TenantId::fixed(2)];
const ENTRIES: usize = 450;
const LONG: Duration = Duration::from_mins(1);

fn sqlite() -> (Arc<dyn Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(Cached::new(Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap()))), folder)
}

async fn postgres() -> Arc<dyn Store> {
    let server = test_postgres::server();
    Arc::new(Postgres::open(&server.url(&server.database())).await.unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Fills a store with data of every kind.
async fn fill(store: &dyn Store) {
    let signer = Signer::new(&[1; 32]);
    for (tenant, number) in TENANTS.into_iter().zip(0_u128..) {
        for kind in Kind::ALL {
            let id = format!("{}-{number}", kind.name());
            let document =
                Document::new(Key::new(kind, &id), &json!({"text": "é\u{0}\"\\", "n": 7})).unwrap();
            let document = document.named(format!("{id} of it")).of("parent");
            for version in 0..3 {
                let put = Change::Put { document: document.clone(), version };
                store.commit(tenant, Batch::new().change(put)).await.unwrap();
            }
        }
        for (status, id) in Status::ALL.into_iter().zip(1..) {
            let call = Call {
                id: CallId::fixed(id),
                server: ServerId::fixed(id),
                tool: "tool".into(),
                subject: "agent:1".into(),
                status,
                digest: Digest::of("arguments").end(),
                arguments: Some((0..=255).collect()),
                result: Some(Vec::new()),
                error: None,
                created: at(1),
                started: Some(at(2)),
                completed: status.is_final().then(|| at(3)),
            };
            let approval = Approval {
                id: ApprovalId::fixed(id),
                call: call.id,
                digest: Digest::of("approval").end(),
                decision: Decision::Used,
                decided_by: Some("user:1".into()),
                created: at(0),
                expires: at(60),
                decided: None,
            };
            let batch = Batch::new().change(Change::Open(Box::new(call))).change(Change::Ask(approval));
            store.commit(tenant, batch).await.unwrap();
        }
        let entry = |number: usize| Entry::new(at(9), "user:1", "call.intent").with("call", number);
        let entries = (0..ENTRIES).fold(Batch::new(), |batch, number| batch.audit(entry(number)));
        store.commit(tenant, entries).await.unwrap();
        let checkpoint = signer.sign(tenant, store.head(tenant).await.unwrap(), at(50));
        store.commit(tenant, Batch::new().change(Change::Checkpoint(checkpoint))).await.unwrap();
    }
}

/// Returns the snapshot of a store, after a round trip through its serialized form.
async fn everything(store: &dyn Store) -> Vec<Copied> {
    let (to, mut from) = channel(1);
    let gather = async {
        let mut all: Vec<Copied> = Vec::new();
        while let Some(copied) = from.recv().await {
            all.push(serde_json::from_str(&serde_json::to_string(&copied).unwrap()).unwrap());
            assert_eq!(all.last(), Some(&copied));
        }
        all
    };
    let (copied, all) =
        tokio::time::timeout(LONG, async { tokio::join!(store.copy_out(to), gather) }).await.unwrap();
    copied.unwrap();
    all
}

fn handed_out(all: &[Copied]) -> Receiver<Copied> {
    let (to, from) = channel(all.len().max(1));
    for copied in all {
        to.try_send(copied.clone()).unwrap();
    }
    from
}

async fn take(store: &dyn Store, all: &[Copied], count: usize) -> Result<()> {
    tokio::time::timeout(LONG, store.copy_in(handed_out(all), count as u64)).await.unwrap()
}

async fn is_copied(one: Arc<dyn Store>, other: Arc<dyn Store>) {
    fill(&*one).await;
    let all = everything(&*one).await;
    assert_eq!(all.len(), 2 * (Kind::ALL.len() + 2 * Status::ALL.len() + ENTRIES + 1));
    // An incomplete or inconsistent snapshot stores nothing.
    assert_eq!(take(&*other, &all[1..], all.len()).await.unwrap_err().code(), "copy_incomplete");
    let twice = [&all[..], &all[..1]].concat();
    assert!(take(&*other, &twice, twice.len()).await.is_err());
    assert_eq!(everything(&*other).await, []);
    take(&*other, &all, all.len()).await.unwrap();
    assert_eq!(everything(&*other).await, all);
    // The store is not empty any more.
    assert_eq!(take(&*other, &all, all.len()).await.unwrap_err().code(), "store_not_empty");
    assert_eq!(everything(&*other).await, all);
    // The audit chain continues after the imported head.
    let head = one.head(TENANTS[0]).await.unwrap();
    assert_eq!(other.head(TENANTS[0]).await.unwrap(), head);
    other.commit(TENANTS[0], Batch::new().audit(Entry::new(at(99), "hub", "x"))).await.unwrap();
    assert_eq!(other.head(TENANTS[0]).await.unwrap().number, head.number + 1);
}

#[tokio::test]
async fn from_sqlite_to_sqlite() {
    let (one, other) = (sqlite(), sqlite());
    is_copied(one.0, other.0).await;
}

#[tokio::test]
async fn from_sqlite_to_postgres() {
    let one = sqlite();
    is_copied(one.0, postgres().await).await;
}

#[tokio::test]
async fn from_postgres_to_sqlite() {
    let other = sqlite();
    is_copied(postgres().await, other.0).await;
}

/// Asserts that a snapshot contains no change made during the export.
async fn is_of_one_moment(store: Arc<dyn Store>) {
    fill(&*store).await;
    let before = everything(&*store).await;
    let (to, mut from) = channel(1);
    let copy = async {
        let mut all = vec![from.recv().await.unwrap()];
        for tenant in TENANTS {
            let document = Document::new(Key::new(Kind::User, "zz"), &json!({})).unwrap();
            let batch = Batch::new().change(Change::Put { document, version: 0 });
            let entry = Entry::new(at(99), "hub", "x");
            store
                .commit(tenant, batch.change(Change::Forget { before: at(1_000), most: 100 }).audit(entry))
                .await
                .unwrap();
        }
        while let Some(copied) = from.recv().await {
            all.push(copied);
        }
        all
    };
    let (copied, all) =
        tokio::time::timeout(LONG, async { tokio::join!(store.copy_out(to), copy) }).await.unwrap();
    copied.unwrap();
    assert_eq!(all, before);
    let after = everything(&*store).await;
    assert!(
        after.iter().any(|copied| matches!(&copied.what, What::Document(one) if one.document.key.id == "zz"))
    );
}

#[tokio::test]
async fn a_copy_of_sqlite_is_of_one_moment() {
    let store = sqlite();
    is_of_one_moment(store.0).await;
}

#[tokio::test]
async fn a_copy_of_postgres_is_of_one_moment() {
    is_of_one_moment(postgres().await).await;
}
