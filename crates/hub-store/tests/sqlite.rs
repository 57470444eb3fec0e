//! Failures of a `SQLite` file: damage, a newer schema version, a lock of another process, and a full disk.

use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{Batch, Document, DocumentKey, DocumentKind, Store, StoreChange};
use linchpin_hub_store::Sqlite;
use serde_json::json;

fn put(id: &str, body: &str) -> Batch {
    let document = Document {
        key: DocumentKey::new(DocumentKind::Agent, id),
        name: None,
        parent: None,
        body: json!(body),
    };
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
    let paging = linchpin_hub_core::store::PageRequest { after: None, limit: 100 };
    assert_eq!(one.documents(ADA, DocumentKind::Agent, None, &paging).await.unwrap().items.len(), 20);
}
