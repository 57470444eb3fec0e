//! Secrets and the keys that open them, through a store: over restarts, rotations, and with the wrong file.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use jiff::Timestamp;
use linchpin_hub_core::hub::LOCAL;
use linchpin_hub_core::id::{SecretId, TenantId};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{Batch, Document, DocumentKey, DocumentKind, Store, StoreChange};
use linchpin_hub_core::vault::key_ring::{KeyRing, RotationSummary};
use linchpin_hub_core::vault::{KeyFile, SecretBinding};
use linchpin_hub_store::Sqlite;
use serde_json::json;
use tempfile::TempDir;

const ADA: TenantId = TenantId::from_u128(1);
const BOB: TenantId = TenantId::from_u128(2);

fn open(folder: &TempDir, file: &str) -> (KeyRing, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap());
    let (file, _) = KeyFile::open(&folder.path().join(file), &SystemPlatform).unwrap();
    (KeyRing::new(store.clone(), Arc::new(SystemPlatform), file), store)
}

fn label() -> SecretBinding {
    SecretBinding { id: SecretId::from_u128(1), kind: "bearer".into(), bound_to: "https://a.example".into() }
}

async fn store_secret(keys: &KeyRing, store: &dyn Store, tenant: TenantId, text: &str) {
    let change = keys.seal_secret(tenant, &label(), "server", &text.into(), 0).await.unwrap();
    store.commit(tenant, Batch::new().change(change)).await.unwrap();
}

async fn decrypted(keys: &KeyRing, tenant: TenantId) -> Result<Option<String>, &'static str> {
    let opened = keys.open_secret(tenant, label().id).await.map_err(|error| error.code())?;
    Ok(opened.map(|(secret, _, _)| secret.expose().to_owned()))
}

/// A rotation of the root key alone.
fn root_rotation(tenants: usize) -> RotationSummary {
    RotationSummary { tenants, ..RotationSummary::default() }
}

/// Another hub on the same store, with the key file as it is now.
fn another_hub_keys(folder: &TempDir, store: &Arc<dyn Store>, file: &str) -> KeyRing {
    let (file, _) = KeyFile::open(&folder.path().join(file), &SystemPlatform).unwrap();
    KeyRing::new(store.clone(), Arc::new(SystemPlatform), file)
}

#[tokio::test]
async fn a_secret_is_opened_by_its_tenant_alone_and_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    store_secret(&keys, &*store, ADA, "canary-of-ada").await;
    store_secret(&keys, &*store, BOB, "canary-of-bob").await;
    drop((keys, store));
    let (keys, store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("canary-of-ada".into())));
    assert_eq!(decrypted(&keys, BOB).await, Ok(Some("canary-of-bob".into())));
    assert_eq!(decrypted(&keys, TenantId::from_u128(3)).await, Ok(None));
    let (_, kept, version) = keys.open_secret(ADA, label().id).await.unwrap().unwrap();
    assert_eq!((&*kept.kind, &*kept.bound_to, version), ("bearer", "https://a.example", 1));
    drop((keys, store));
    for file in std::fs::read_dir(place.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"canary"));
    }
}

#[tokio::test]
async fn the_wrong_file_opens_nothing_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    store_secret(&keys, &*store, ADA, "canary").await;
    drop((keys, store));
    let (keys, store) = open(&place, "other");
    assert_eq!(decrypted(&keys, ADA).await, Err("wrong_key_file"));
    assert_eq!(keys.rotate(false).await.unwrap_err().code(), "wrong_key_file");
    drop((keys, store));
    let (keys, _store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("canary".into())));
}

#[tokio::test]
async fn root_keys_are_rotated_while_everything_works() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    store_secret(&keys, &*store, ADA, "of ada").await;
    store_secret(&keys, &*store, BOB, "of bob").await;
    let before = std::fs::read_to_string(place.path().join("keys")).unwrap();
    assert_eq!(keys.rotate(false).await, Ok(root_rotation(2)));
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(keys.rotate(false).await, Ok(root_rotation(2)));
    drop((keys, store));
    let (keys, store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, BOB).await, Ok(Some("of bob".into())));
    assert_eq!(store.audit_head(ADA).await.unwrap().number, 3, "created, and rotated twice");
    drop((keys, store));
    // The old key file is useless.
    std::fs::write(place.path().join("keys"), before).unwrap();
    let (keys, _store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Err("wrong_key_file"));
}

#[tokio::test]
async fn what_was_broken_off_is_finished() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    store_secret(&keys, &*store, ADA, "of ada").await;
    drop((keys, store));
    // As after a crash right after the new key was written.
    let (mut file, _) = KeyFile::open(&place.path().join("keys"), &SystemPlatform).unwrap();
    let lock = file.lock().unwrap();
    file.add_root(&lock, &SystemPlatform).unwrap();
    drop(lock);
    let (keys, _store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(keys.rotate(false).await, Ok(root_rotation(1)));
    let text = std::fs::read_to_string(place.path().join("keys")).unwrap();
    assert_eq!(text.matches("root ").count(), 1);
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
}

#[tokio::test]
async fn a_hub_that_has_not_seen_a_rotation_loses_no_key() {
    let place = tempfile::tempdir().unwrap();
    let (one, store) = open(&place, "keys");
    store_secret(&one, &*store, ADA, "of ada").await;
    let other = another_hub_keys(&place, &store, "keys");
    assert_eq!(decrypted(&other, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(one.rotate(false).await, Ok(root_rotation(1)));
    // It still has the previous root key in memory.
    store_secret(&other, &*store, BOB, "of bob").await;
    assert_eq!(other.rotate(false).await, Ok(root_rotation(2)));
    assert_eq!(one.rotate(false).await, Ok(root_rotation(2)));
    drop((one, other, store));
    let (keys, _store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(decrypted(&keys, BOB).await, Ok(Some("of bob".into())));
}

#[tokio::test]
async fn a_hub_with_an_old_copy_of_the_key_file_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (one, store) = open(&place, "keys");
    store_secret(&one, &*store, ADA, "of ada").await;
    std::fs::copy(place.path().join("keys"), place.path().join("copy")).unwrap();
    let other = another_hub_keys(&place, &store, "copy");
    assert_eq!(decrypted(&other, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(one.rotate(false).await, Ok(root_rotation(1)));
    let before = std::fs::read(place.path().join("copy")).unwrap();
    assert_eq!(other.rotate(false).await.unwrap_err().code(), "wrong_key_file");
    let change = other.seal_secret(BOB, &label(), "server", &"of bob".into(), 0).await;
    assert_eq!(change.unwrap_err().code(), "wrong_key_file");
    assert_eq!(std::fs::read(place.path().join("copy")).unwrap(), before);
    drop((one, other, store));
    let (keys, _store) = open(&place, "keys");
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(decrypted(&keys, BOB).await, Ok(None));
}

#[tokio::test]
async fn two_rotations_at_once_take_turns() {
    let place = tempfile::tempdir().unwrap();
    let (one, store) = open(&place, "keys");
    store_secret(&one, &*store, ADA, "of ada").await;
    store_secret(&one, &*store, BOB, "of bob").await;
    let busy = async || one.rotate(false).await.unwrap_err().code() == "keys_busy";
    // On one machine by the lock beside the file.
    let (file, _) = KeyFile::open(&place.path().join("keys"), &SystemPlatform).unwrap();
    let lock = file.lock().unwrap();
    assert!(busy().await);
    drop(lock);
    // On two machines by the lease in the store.
    let lease = |until: Timestamp, version| {
        let document =
            Document::new(DocumentKey::new(DocumentKind::Lease, "key-rotation"), &json!({ "until": until }));
        store.commit(LOCAL, Batch::new().change(StoreChange::Put { document: document.unwrap(), version }))
    };
    lease(Timestamp::MAX, 0).await.unwrap();
    assert!(busy().await);
    lease(Timestamp::UNIX_EPOCH, 1).await.unwrap();
    assert_eq!(one.rotate(false).await, Ok(root_rotation(2)));
    assert_eq!(decrypted(&one, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(decrypted(&one, BOB).await, Ok(Some("of bob".into())));
}

#[tokio::test]
async fn root_keys_with_numbers_are_still_read() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("keys"), include_str!("fixtures/numbered.keys")).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(place.path().join("keys"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let (keys, store) = open(&place, "keys");
    let body: serde_json::Value = serde_json::from_str(include_str!("fixtures/numbered.json")).unwrap();
    let document = Document::new(DocumentKey::new(DocumentKind::TenantKey, "0000000001"), &body).unwrap();
    store.commit(ADA, Batch::new().change(StoreChange::Put { document, version: 0 })).await.unwrap();
    store_secret(&keys, &*store, ADA, "of ada").await;
    assert_eq!(keys.rotate(false).await, Ok(root_rotation(1)));
    assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
    let text = std::fs::read_to_string(place.path().join("keys")).unwrap();
    assert!(!text.contains("root 2 "), "a random id follows");
}

#[tokio::test]
async fn secrets_get_a_new_tenant_key_and_the_history_stays_readable() {
    let place = tempfile::tempdir().unwrap();
    let (one, store) = open(&place, "keys");
    store_secret(&one, &*store, ADA, "of ada").await;
    let call = SecretBinding { id: SecretId::from_u128(0), kind: "call result".into(), bound_to: "7".into() };
    let history = one.encrypt(ADA, &call, b"42").await.unwrap();
    let other = another_hub_keys(&place, &store, "keys");
    assert_eq!(decrypted(&other, ADA).await, Ok(Some("of ada".into())));
    let secret = DocumentKey::new(DocumentKind::Secret, label().id);
    let before = store.document(ADA, &secret).await.unwrap().unwrap();
    assert_eq!(one.rotate(true).await, Ok(RotationSummary { tenants: 1, secrets: 1, unreadable: 0 }));
    let after = store.document(ADA, &secret).await.unwrap().unwrap();
    assert_ne!(before.document.body["bytes"], after.document.body["bytes"]);
    assert_eq!((&before.document.parent, before.version + 1), (&after.document.parent, after.version));
    // The one that rotated, one that has only the old tenant key in memory, and one that starts.
    for keys in [one, other, another_hub_keys(&place, &store, "keys")] {
        assert_eq!(decrypted(&keys, ADA).await, Ok(Some("of ada".into())));
        assert_eq!(**keys.decrypt(ADA, &call, &history).await.unwrap(), *b"42");
    }
    // The secret does not open with the first tenant key any more.
    let keys = another_hub_keys(&place, &store, "keys");
    let first = DocumentKey::new(DocumentKind::TenantKey, "0000000002");
    store.commit(ADA, Batch::new().change(StoreChange::Delete(first))).await.unwrap();
    assert_eq!(decrypted(&keys, ADA).await, Err("secret_unreadable"));
}
