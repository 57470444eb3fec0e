//! Tenant keys while hubs rotate them: keys in use stay, and no tenant waits for a whole rotation.

use std::path::Path;
use std::sync::Arc;

use linchpin_hub_core::hub::LOCAL_USER;
use linchpin_hub_core::id::{SecretId, TenantId};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{
    Batch, CacheScope, DocumentKey, DocumentKind, DocumentStore, MaintenanceStore, Store, StoreChange,
};
use linchpin_hub_core::vault::key_ring::KeyRing;
use linchpin_hub_core::vault::{KeyFile, SecretBinding};
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_store::Sqlite;

use crate::background_task::{BackgroundTask, within_timeout};
use crate::faulty_store::{FaultyStore, commits, stores};
use crate::fixture::{ADA, BOB, Stage};

const EVE: TenantId = TenantId::from_u128(3);

fn store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(Sqlite::open(&folder.join("hub.db")).unwrap())
}

/// The keys of a hub with this key file.
fn keys(folder: &Path, store: &Arc<FaultyStore>, file: &str) -> Arc<KeyRing> {
    let (file, _) = KeyFile::open(&folder.join(file), &SystemPlatform).unwrap();
    Arc::new(KeyRing::new(store.clone(), Arc::new(SystemPlatform), file))
}

fn first_key() -> DocumentKey {
    DocumentKey::new(DocumentKind::TenantKey, "0000000001")
}

#[tokio::test]
async fn a_first_key_that_another_hub_has_wrapped_again_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    let store = FaultyStore::new(store(place.path()));
    let one = keys(place.path(), &store, "keys");
    one.tenant_keys(ADA).await.unwrap();
    std::fs::copy(place.path().join("keys"), place.path().join("copy")).unwrap();
    let other = keys(place.path(), &store, "copy");
    one.rotate(false).await.unwrap();
    // The other one, with the previous root key, creates a key and notices that it must not be used.
    let removal = store.hold(commits(|change| matches!(change, StoreChange::Delete(_))));
    let making = BackgroundTask::new(async move { other.tenant_keys(BOB).await.map(drop) });
    removal.reached().await;
    let key = store.document(BOB, &first_key()).await.unwrap().unwrap();
    let (document, version) = (key.document, key.version);
    store.commit(BOB, Batch::new().change(StoreChange::Put { document, version })).await.unwrap();
    removal.open();
    assert_eq!(within_timeout(making.join()).await.unwrap_err().code(), "wrong_key_file");
    let key = store.document(BOB, &first_key()).await.unwrap();
    assert_eq!(key.map(|key| key.version), Some(version + 1));
}

#[tokio::test]
async fn a_rotation_that_takes_long_holds_up_no_tenant() {
    let place = tempfile::tempdir().unwrap();
    let store = FaultyStore::new(store(place.path()));
    let one = keys(place.path(), &store, "keys");
    for tenant in [ADA, BOB] {
        one.tenant_keys(tenant).await.unwrap();
    }
    let one = keys(place.path(), &store, "keys"); // nothing is cached
    let wrapping = store.hold(stores(DocumentKind::TenantKey));
    let rotation = BackgroundTask::new({
        let one = one.clone();
        async move { one.rotate(true).await }
    });
    wrapping.reached().await;
    // One that exists, and one whose first key is created concurrently.
    for tenant in [BOB, EVE] {
        within_timeout(one.tenant_keys(tenant)).await.unwrap();
    }
    wrapping.open();
    assert_eq!(
        within_timeout(rotation.join()).await.unwrap().tenants,
        2,
        "the third already has the new root key"
    );
    let again = keys(place.path(), &store, "keys");
    for tenant in [ADA, BOB, EVE] {
        assert_eq!(again.tenant_keys(tenant).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_rotation_goes_on_when_its_request_is_dropped() {
    let (stage, store) = Stage::gated().await;
    stage.hub.unlock().await.unwrap(); // creates the key of the tenant
    let wrapping = store.hold(stores(DocumentKind::TenantKey));
    let hub = stage.hub.clone();
    let actor = Actor::new(ADA, Subject::User(LOCAL_USER));
    let rotation = BackgroundTask::new(async move { hub.rotate_keys(actor, false).await });
    wrapping.reached().await;
    drop(rotation);
    wrapping.open();
    let finished = async {
        while !stage.actions().await.contains(&"key.rotation_finished".to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    within_timeout(finished).await;
    stage.hub.rotate_keys(actor, false).await.unwrap();
}

#[tokio::test]
async fn a_hub_uses_the_new_key_of_a_tenant_as_soon_as_it_hears_of_it() {
    let place = tempfile::tempdir().unwrap();
    let store = FaultyStore::shared_by_hubs(store(place.path()));
    let (one, other) = (keys(place.path(), &store, "keys"), keys(place.path(), &store, "keys"));
    std::fs::copy(place.path().join("keys"), place.path().join("copy")).unwrap();
    let behind = keys(place.path(), &store, "copy"); // its machine does not have the new key file yet
    for keys in [&other, &behind] {
        assert_eq!(keys.tenant_keys(ADA).await.unwrap().len(), 1);
    }
    one.rotate(true).await.unwrap();
    let news = DocumentKey::new(DocumentKind::TenantKey, "0000000002");
    let document = store.document(ADA, &news).await.unwrap().unwrap().document;
    let about = CacheScope::of(&StoreChange::Put { document, version: 0 }).unwrap();
    store.shared().unwrap().notify(Some((ADA, &about)));
    let label = SecretBinding { id: SecretId::from_u128(1), kind: "test".into(), bound_to: "x".into() };
    let sealed = other.encrypt(ADA, &label, b"text").await.unwrap();
    let newest = one.tenant_keys(ADA).await.unwrap();
    assert!(newest[1].open(&label, &sealed).is_ok(), "it is encrypted with the newest key");
    for _ in 0..2 {
        assert_eq!(behind.tenant_keys(ADA).await.unwrap().len(), 1, "it still works");
    }
}
