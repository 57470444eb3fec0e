//! Secrets and the keys that open them, through a store: over restarts, rotations, and with the wrong file.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use linchpin_hub_core::id::{SecretId, TenantId};
use linchpin_hub_core::keys::Keys;
use linchpin_hub_core::store::{Batch, Store};
use linchpin_hub_core::vault::{KeyFile, Label};
use linchpin_hub_core::world::System;
use linchpin_hub_store::Sqlite;
use tempfile::TempDir;

const ADA: TenantId = TenantId::fixed(1);
const BOB: TenantId = TenantId::fixed(2);

fn open(folder: &TempDir, file: &str) -> (Keys, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap());
    let (file, _) = KeyFile::open(&folder.path().join(file), &System).unwrap();
    (Keys::new(store.clone(), Arc::new(System), file), store)
}

fn label() -> Label {
    Label { id: SecretId::fixed(1), kind: "bearer".into(), bound_to: "https://a.example".into() }
}

async fn keep(keys: &Keys, store: &dyn Store, tenant: TenantId, text: &str) {
    let change = keys.seal(tenant, &label(), "server", &text.into(), 0).await.unwrap();
    store.commit(tenant, Batch::new().change(change)).await.unwrap();
}

async fn opened(keys: &Keys, tenant: TenantId) -> Result<Option<String>, &'static str> {
    let opened = keys.open(tenant, label().id).await.map_err(|error| error.code())?;
    Ok(opened.map(|(secret, _, _)| secret.expose().to_owned()))
}

#[tokio::test]
async fn a_secret_is_opened_by_its_tenant_alone_and_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    keep(&keys, &*store, ADA, "canary-of-ada").await;
    keep(&keys, &*store, BOB, "canary-of-bob").await;
    drop((keys, store));
    let (keys, store) = open(&place, "keys");
    assert_eq!(opened(&keys, ADA).await, Ok(Some("canary-of-ada".into())));
    assert_eq!(opened(&keys, BOB).await, Ok(Some("canary-of-bob".into())));
    assert_eq!(opened(&keys, TenantId::fixed(3)).await, Ok(None));
    let (_, kept, version) = keys.open(ADA, label().id).await.unwrap().unwrap();
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
    keep(&keys, &*store, ADA, "canary").await;
    drop((keys, store));
    let (keys, store) = open(&place, "other");
    assert_eq!(opened(&keys, ADA).await, Err("wrong_key_file"));
    assert_eq!(keys.rotate().await.unwrap_err().code(), "wrong_key_file");
    drop((keys, store));
    let (keys, _store) = open(&place, "keys");
    assert_eq!(opened(&keys, ADA).await, Ok(Some("canary".into())));
}

#[tokio::test]
async fn root_keys_are_turned_over_while_everything_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    keep(&keys, &*store, ADA, "of ada").await;
    keep(&keys, &*store, BOB, "of bob").await;
    let before = std::fs::read_to_string(place.path().join("keys")).unwrap();
    assert_eq!(keys.rotate().await, Ok(2));
    assert_eq!(opened(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(keys.rotate().await, Ok(2));
    drop((keys, store));
    let (keys, store) = open(&place, "keys");
    assert_eq!(opened(&keys, BOB).await, Ok(Some("of bob".into())));
    assert_eq!(store.head(ADA).await.unwrap().number, 3, "made, and turned over twice");
    drop((keys, store));
    // The old file is worth nothing any more.
    std::fs::write(place.path().join("keys"), before).unwrap();
    let (keys, _store) = open(&place, "keys");
    assert_eq!(opened(&keys, ADA).await, Err("wrong_key_file"));
}

#[tokio::test]
async fn what_was_broken_off_is_finished() {
    let place = tempfile::tempdir().unwrap();
    let (keys, store) = open(&place, "keys");
    keep(&keys, &*store, ADA, "of ada").await;
    drop((keys, store));
    // As if the hub had ended right after it wrote the new key.
    KeyFile::open(&place.path().join("keys"), &System).unwrap().0.add(&System).unwrap();
    let (keys, _store) = open(&place, "keys");
    assert_eq!(opened(&keys, ADA).await, Ok(Some("of ada".into())));
    assert_eq!(keys.rotate().await, Ok(1));
    let text = std::fs::read_to_string(place.path().join("keys")).unwrap();
    assert_eq!(text.matches("root ").count(), 1);
    assert_eq!(opened(&keys, ADA).await, Ok(Some("of ada".into())));
}
