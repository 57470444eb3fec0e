//! Tenant keys while hubs rotate them: keys in use stay, and no tenant waits for a whole rotation.

use std::path::Path;
use std::sync::Arc;

use linchpin_hub_core::hub::LOCAL_USER;
use linchpin_hub_core::id::{SecretId, TenantId};
use linchpin_hub_core::platform::System;
use linchpin_hub_core::store::{About, Batch, Change, Key, Kind, Store};
use linchpin_hub_core::vault::key_ring::Keys;
use linchpin_hub_core::vault::{KeyFile, Label};
use linchpin_hub_core::{Scope, Subject};
use linchpin_hub_store::Sqlite;

use crate::background_task::{Aside, soon};
use crate::faulty_store::{Gated, change, put};
use crate::fixture::{ADA, BOB, Stage};

const EVE: TenantId = TenantId::fixed(3);

fn store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(Sqlite::open(&folder.join("hub.db")).unwrap())
}

/// The keys of a hub with this key file.
fn keys(folder: &Path, store: &Arc<Gated>, file: &str) -> Arc<Keys> {
    let (file, _) = KeyFile::open(&folder.join(file), &System).unwrap();
    Arc::new(Keys::new(store.clone(), Arc::new(System), file))
}

fn first_key() -> Key {
    Key::new(Kind::TenantKey, "0000000001")
}

#[tokio::test]
async fn a_first_key_that_another_hub_has_wrapped_again_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    let store = Gated::new(store(place.path()));
    let one = keys(place.path(), &store, "keys");
    one.of(ADA).await.unwrap();
    std::fs::copy(place.path().join("keys"), place.path().join("copy")).unwrap();
    let other = keys(place.path(), &store, "copy");
    one.rotate(false).await.unwrap();
    // The other one, with the previous root key, creates a key and notices that it must not be used.
    let removal = store.hold(change(|change| matches!(change, Change::Remove(_))));
    let making = Aside::new(async move { other.of(BOB).await.map(drop) });
    removal.came().await;
    let key = store.document(BOB, &first_key()).await.unwrap().unwrap();
    let (document, version) = (key.document, key.version);
    store.commit(BOB, Batch::new().change(Change::Put { document, version })).await.unwrap();
    removal.open();
    assert_eq!(soon(making.done()).await.unwrap_err().code(), "wrong_key_file");
    let key = store.document(BOB, &first_key()).await.unwrap();
    assert_eq!(key.map(|key| key.version), Some(version + 1));
}

#[tokio::test]
async fn a_rotation_that_takes_long_holds_up_no_tenant() {
    let place = tempfile::tempdir().unwrap();
    let store = Gated::new(store(place.path()));
    let one = keys(place.path(), &store, "keys");
    for tenant in [ADA, BOB] {
        one.of(tenant).await.unwrap();
    }
    let one = keys(place.path(), &store, "keys"); // nothing is cached
    let wrapping = store.hold(put(Kind::TenantKey));
    let rotation = Aside::new({
        let one = one.clone();
        async move { one.rotate(true).await }
    });
    wrapping.came().await;
    // One that exists, and one whose first key is created concurrently.
    for tenant in [BOB, EVE] {
        soon(one.of(tenant)).await.unwrap();
    }
    wrapping.open();
    assert_eq!(soon(rotation.done()).await.unwrap().tenants, 2, "the third already has the new root key");
    let again = keys(place.path(), &store, "keys");
    for tenant in [ADA, BOB, EVE] {
        assert_eq!(again.of(tenant).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_rotation_goes_on_when_its_request_is_dropped() {
    let (stage, store) = Stage::gated().await;
    stage.hub.unlock().await.unwrap(); // creates the key of the tenant
    let wrapping = store.hold(put(Kind::TenantKey));
    let hub = stage.hub.clone();
    let scope = Scope::new(ADA, Subject::User(LOCAL_USER));
    let rotation = Aside::new(async move { hub.rotate_keys(scope, false).await });
    wrapping.came().await;
    drop(rotation);
    wrapping.open();
    let finished = async {
        while !stage.actions().await.contains(&"key.rotation".to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    soon(finished).await;
    stage.hub.rotate_keys(scope, false).await.unwrap();
}

#[tokio::test]
async fn a_hub_uses_the_new_key_of_a_tenant_as_soon_as_it_hears_of_it() {
    let place = tempfile::tempdir().unwrap();
    let store = Gated::shared_by_hubs(store(place.path()));
    let (one, other) = (keys(place.path(), &store, "keys"), keys(place.path(), &store, "keys"));
    std::fs::copy(place.path().join("keys"), place.path().join("copy")).unwrap();
    let behind = keys(place.path(), &store, "copy"); // its machine does not have the new key file yet
    for keys in [&other, &behind] {
        assert_eq!(keys.of(ADA).await.unwrap().len(), 1);
    }
    one.rotate(true).await.unwrap();
    let news = Key::new(Kind::TenantKey, "0000000002");
    let document = store.document(ADA, &news).await.unwrap().unwrap().document;
    let about = About::of(&Change::Put { document, version: 0 }).unwrap();
    store.shared().unwrap().changed(Some((ADA, &about)));
    let label = Label { id: SecretId::fixed(1), kind: "test".into(), bound_to: "x".into() };
    let sealed = other.encrypt(ADA, &label, b"text").await.unwrap();
    let newest = one.of(ADA).await.unwrap();
    assert!(newest[1].open(&label, &sealed).is_ok(), "it is encrypted with the newest key");
    for _ in 0..2 {
        assert_eq!(behind.of(ADA).await.unwrap().len(), 1, "it still works");
    }
}
