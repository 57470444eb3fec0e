//! `SQLite` file: damage, a newer schema version, a full disk, two programs, groups of batches, and checkpoints.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use jiff::Timestamp;
use linchpin_hub_core::audit::{AuditEntry, ChainVerifier};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{CallId, ServerId, TenantId};
use linchpin_hub_core::rate_limit::RateLimit;
use linchpin_hub_core::store::{
    Batch, CallFilter, CallOutcome, CallRecord, CallStatus, CallStore, CountedCalls, Document, DocumentKey,
    DocumentKind, DocumentStore, PageRequest, Store, StoreChange,
};
use linchpin_hub_store::Sqlite;

fn put(id: &str, body: &str) -> Batch {
    let document = Document::new(DocumentKey::new(DocumentKind::Agent, id), &body).unwrap();
    Batch::new().change(StoreChange::Put { document, version: 0 })
}

const ADA: TenantId = TenantId::from_u128(1);

#[test]
fn what_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    std::fs::write(&path, "this is a letter to somebody, and long enough to look like something".repeat(99))
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = Sqlite::open(&path).err().unwrap();
    assert_eq!(error.to_string(), "the database is damaged: restore it from a backup");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_hub_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    drop(Sqlite::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert_eq!(Sqlite::open(&path).err().unwrap().code(), "store_too_new");
}

#[tokio::test]
async fn a_disk_without_room_fails_what_needs_room_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    let store = Sqlite::open(&path).unwrap();
    store.commit(ADA, put("before", "x")).await.unwrap();
    drop(store);
    let store = Sqlite::open_bounded(&path, std::fs::metadata(&path).unwrap().len()).unwrap();
    let error = store.commit(ADA, put("large", &"x".repeat(1 << 20))).await.unwrap_err();
    assert_eq!(error.to_string(), "the disk is full: nothing can be stored until there is free space");
    assert_eq!(store.document(ADA, &DocumentKey::new(DocumentKind::Agent, "large")).await.unwrap(), None);
    assert!(store.document(ADA, &DocumentKey::new(DocumentKind::Agent, "before")).await.unwrap().is_some());
    drop(store);
    let store = Sqlite::open(&path).unwrap();
    store.commit(ADA, put("large", &"x".repeat(1 << 20))).await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_beside_a_file_that_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    for number in 0..100 {
        let store = Sqlite::open(&path).unwrap();
        store.commit(ADA, put(&number.to_string(), "x")).await.unwrap();
        drop(store);
        let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["hub.db"], "after {number}");
    }
}

#[tokio::test]
async fn two_programs_can_have_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    let (one, other) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for number in 0..20 {
        let store = if number % 2 == 0 { &one } else { &other };
        store.commit(ADA, put(&number.to_string(), "x")).await.unwrap();
    }
    let paging = PageRequest { after: None, limit: 100 };
    assert_eq!(one.documents(ADA, DocumentKind::Agent, None, &paging).await.unwrap().items.len(), 20);
}

fn entry() -> AuditEntry {
    AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "call.intent")
}

fn start(id: u128) -> Batch {
    let call = CallRecord {
        id: CallId::from_u128(id),
        server: ServerId::from_u128(1),
        tool: "tool".into(),
        subject: "agent:1".into(),
        status: CallStatus::Running,
        digest: Digest::of("arguments").finish(),
        arguments: None,
        result: None,
        error: None,
        created: Timestamp::UNIX_EPOCH,
        started: Some(Timestamp::UNIX_EPOCH),
        completed: None,
    };
    Batch::new().change(StoreChange::InsertCall(Box::new(call))).audit(entry())
}

fn finish(id: u128) -> Batch {
    let outcome = CallOutcome {
        status: CallStatus::Success,
        result: None,
        error: None,
        at: Timestamp::UNIX_EPOCH,
        retains_arguments: true,
    };
    Batch::new().change(StoreChange::FinishCall { call: CallId::from_u128(id), outcome }).audit(entry())
}

fn limited(max_calls: u32) -> StoreChange {
    StoreChange::RequireConcurrency { scope: CountedCalls::Subject("agent:1".into()), max_calls }
}

fn take() -> StoreChange {
    let rate = RateLimit { burst: 4, per_minute: 1 };
    StoreChange::ConsumeRate { bucket: "agent:1".into(), rate, at: Timestamp::UNIX_EPOCH }
}

async fn assert_intact(store: &dyn Store, entries: u64) {
    let mut verifier = ChainVerifier::new(ADA, None);
    for entry in store.audit_entries(ADA, 0, 500).await.unwrap() {
        verifier.verify_entry(&entry).unwrap();
    }
    assert_eq!(verifier.finish().unwrap().number, entries);
}

#[tokio::test]
async fn a_writer_sees_what_another_program_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    let (one, other) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for number in 0..4 {
        one.commit(ADA, start(2 * number)).await.unwrap();
        other.commit(ADA, start(2 * number + 1).change(take())).await.unwrap();
        one.commit(ADA, finish(2 * number + 1)).await.unwrap();
        let again = other.commit(ADA, finish(2 * number + 1)).await.unwrap_err();
        assert_eq!(again.code(), "call_state_conflict");
    }
    // Four calls are running, all started by `one`, and the bucket was emptied by `other`.
    let room = |max| Batch::new().change(limited(max));
    assert_eq!(other.commit(ADA, room(4)).await.unwrap_err().code(), "too_many_calls");
    other.commit(ADA, room(5)).await.unwrap();
    let empty = one.commit(ADA, Batch::new().change(take())).await.unwrap_err();
    assert_eq!(empty.code(), "rate_limited");
    assert_intact(&one, 12).await;
}

#[tokio::test]
async fn a_batch_that_fails_leaves_the_others_of_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap());
    store.commit(ADA, start(1_000)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60 {
        // Every third batch fails after it has changed something; only four of the others find a token.
        let batch = match number % 3 {
            0 => start(number).change(finish(2_000).changes.remove(0)),
            1 => start(number),
            _ => start(number).change(take()),
        };
        let store = store.clone();
        tasks.spawn(async move { (number, store.commit(ADA, batch).await) });
    }
    let mut committed = Vec::new();
    for (number, outcome) in tasks.join_all().await {
        match (number % 3, outcome) {
            (1 | 2, Ok(())) => committed.push(CallId::from_u128(number)),
            (0, Err(error)) => assert_eq!(error.code(), "not_found"),
            (2, Err(error)) => assert_eq!(error.code(), "rate_limited"),
            (_, outcome) => panic!("{number}: {outcome:?}"),
        }
    }
    assert_eq!(committed.len(), 24);
    committed.sort_unstable_by(|one, other| other.cmp(one));
    let paging = PageRequest { after: None, limit: 100 };
    let found = store.calls(ADA, &CallFilter::default(), &paging).await.unwrap().items;
    assert_eq!(found[1..].iter().map(|call| call.id).collect::<Vec<_>>(), committed);
    store.commit(ADA, finish(1_000).change(limited(25))).await.unwrap();
    assert_intact(&*store, 26).await;
}

#[tokio::test]
async fn checkpoints_empty_the_log_while_the_store_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.db");
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
    let store = Sqlite::open(&path).unwrap();
    let body = "x".repeat(1 << 20);
    for number in 0..24 {
        store.commit(ADA, put(&number.to_string(), &body)).await.unwrap();
    }
    // Lists are read by the thread that runs the checkpoints.
    let paging = PageRequest { after: None, limit: 1 };
    store.calls(ADA, &CallFilter::default(), &paging).await.unwrap();
    assert!(size("hub.db") >= 16 << 20, "{}", size("hub.db"));
    for number in 24..160 {
        store.commit(ADA, put(&number.to_string(), &body)).await.unwrap();
    }
    assert!(size("hub.db-wal") < 80 << 20, "{}", size("hub.db-wal"));
}
