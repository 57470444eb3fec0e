//! Refresh leases: a hub extends its lease as long as the refresh takes; a hub that has lost its lease overwrites no
//! newer grant; abandoned sign-ins are deleted.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use linchpin::testing::authority::Authority;
use linchpin_hub_core::hub::oauth::SignInStatus;
use linchpin_hub_core::hub::{CallView, Hub};
use linchpin_hub_core::store::{CallStatus, DocumentKind, PageRequest, StoredDocument};
use serde_json::json;
use tokio::time::{advance, pause};

use crate::background_loop::RunningHub;
use crate::background_task::BackgroundTask;
use crate::faulty_store::{FaultyStore, StoreRequest, stores};
use crate::fixture::{ADA, Stage, another_hub, local_user};
use crate::oauth_fixture::{call, greet, oauth_stage, sign_in, start_sign_in, used_tokens};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A little longer than the interval of lease extensions.
const EXTENSION_INTERVAL: Duration = Duration::from_millis(10_010);
/// A little longer than the lifetime of a lease.
const LEASE_TTL: Duration = Duration::from_millis(30_010);
/// A little longer than the poll interval of a hub that waits for a lease.
const POLL_INTERVAL: Duration = Duration::from_millis(60);

/// Runs a test with a paused clock that only the test advances. Fails after 30 s of real time.
async fn with_paused_clock(test: impl Future<Output = ()>) {
    let (over, is_over) = sync_channel::<()>(1);
    // A blocking task prevents the runtime from advancing the paused clock automatically.
    let blocks = tokio::task::spawn_blocking(move || is_over.recv_timeout(TEST_TIMEOUT));
    pause();
    tokio::select! {
        () = test => drop(over),
        _ = blocks => panic!("the test takes too long"),
    }
}

/// Two hubs on one store whose token has expired.
async fn two_hubs(stage: &Stage, authority: &Authority) -> [(Arc<Hub>, Arc<FaultyStore>); 2] {
    assert_eq!(sign_in(stage, authority, None).await, SignInStatus::Done);
    let patient = json!({ "timeout_ms": 300_000 });
    stage.hub.registry().update_server(local_user(ADA), "guarded", patient).await.unwrap();
    let two = [(), ()].map(|()| {
        let store = FaultyStore::new(stage.store.clone());
        (another_hub(&stage.folder, stage.clock.clone(), store.clone()), store)
    });
    for (hub, _) in &two {
        assert_eq!(call(hub, local_user(ADA), "greet").await.status, CallStatus::Success);
    }
    authority.expire_tokens();
    two
}

fn start_call(hub: &Arc<Hub>) -> BackgroundTask<CallView> {
    let hub = hub.clone();
    BackgroundTask::new(async move { call(&hub, local_user(ADA), "greet").await })
}

fn reads(kind: DocumentKind) -> impl Fn(&StoreRequest<'_>) -> bool {
    move |asked| matches!(asked, StoreRequest::Document(key) if key.kind == kind)
}

/// Returns ids and versions of the stored secrets of the server.
async fn stored_secrets(stage: &Stage) -> Vec<(String, u64)> {
    let server = stage.hub.registry().server(local_user(ADA), "guarded").await.unwrap().id.to_string();
    let paging = PageRequest { after: None, limit: 10 };
    let all = stage.store.documents(ADA, DocumentKind::Secret, Some(&server), &paging).await.unwrap().items;
    all.into_iter().map(|StoredDocument { document, version }| (document.key.id, version)).collect()
}

#[tokio::test]
async fn a_lease_lasts_as_long_as_it_is_held() {
    let (stage, authority) = oauth_stage("shared").await;
    let [(one, slow), (other, store)] = two_hubs(&stage, &authority).await;
    let test = async {
        let gate = slow.hold(stores(DocumentKind::Secret));
        let first = start_call(&one);
        gate.reached().await;
        let (written, looked) =
            (slow.notify(stores(DocumentKind::Lease)), store.notify(reads(DocumentKind::Lease)));
        let second = start_call(&other);
        looked.notified().await;
        for _ in 0..5 {
            advance(EXTENSION_INTERVAL).await;
            written.notified().await;
            looked.notified().await;
            advance(POLL_INTERVAL).await; // the next poll sees the extended lease
            looked.notified().await;
        }
        assert_eq!(authority.observations().refreshes, 1);
        gate.open();
        written.notified().await; // the lease is released
        advance(POLL_INTERVAL).await;
        for call in [first, second] {
            assert_eq!(call.join().await.status, CallStatus::Success);
        }
    };
    with_paused_clock(test).await;
    let seen = authority.observations();
    assert_eq!((seen.refreshes, seen.reuses, seen.with_grant_type("refresh_token").count()), (1, 0, 1));
}

#[tokio::test]
async fn who_has_lost_the_lease_keeps_nothing_in_place_of_what_is_newer() {
    let (stage, authority) = oauth_stage("shared").await;
    let authority = Arc::new(authority);
    let [(one, slow), (other, store)] = two_hubs(&stage, &authority).await;
    let (query, proof) = start_sign_in(&other, &authority, None).await;
    let test = async {
        // The first hub has refreshed the token, and is about to store it.
        let seen = authority.clone();
        let gate = slow.hold(move |asked| {
            (reads(DocumentKind::Secret)(asked) || stores(DocumentKind::Secret)(asked))
                && seen.observations().refreshes == 1
        });
        let first = start_call(&one);
        gate.reached().await;
        slow.lose(stores(DocumentKind::Lease));
        let looked = store.notify(reads(DocumentKind::Lease));
        let signs_in = BackgroundTask::new(async move { other.complete_sign_in(&query, &proof).await });
        looked.notified().await;
        advance(LEASE_TTL).await;
        assert_eq!(signs_in.join().await.unwrap().progress, SignInStatus::Done);
        let newer = stored_secrets(&stage).await;
        gate.open();
        assert_eq!(first.join().await.status, CallStatus::Success, "its token is valid");
        assert_eq!(stored_secrets(&stage).await, newer, "a user has signed in since");
        // The newer grant is used from now on.
        slow.clear_rules();
        let written = slow.notify(stores(DocumentKind::Lease));
        advance(LEASE_TTL).await;
        written.notified().await;
        written.notified().await;
        let before = used_tokens(&authority).len();
        assert_eq!(call(&one, local_user(ADA), "greet").await.status, CallStatus::Success);
        assert_eq!((used_tokens(&authority).len(), authority.observations().refreshes), (before, 1));
        assert_eq!(stored_secrets(&stage).await, newer);
    };
    with_paused_clock(Box::pin(test)).await;
}

#[tokio::test]
async fn who_never_came_back_is_forgotten_by_and_by() {
    let (mut stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    let old = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    stage.clock.advance(599);
    let new = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(stored_secrets(&stage).await.len(), 4, "the grant and three pending sign-ins");
    stage.clock.advance(1);
    let store = FaultyStore::new(stage.store.clone());
    stage.hub = another_hub(&stage.folder, stage.clock.clone(), store.clone());
    RunningHub::once(&stage.hub, &store).await.end().await;
    assert_eq!(stored_secrets(&stage).await.len(), 2);
    assert_eq!(
        stage.hub.upstream().sign_in_view(local_user(ADA), &old.id).await.unwrap_err().code(),
        "not_found"
    );
    let new = stage.hub.upstream().sign_in_view(local_user(ADA), &new.id).await.unwrap();
    assert_eq!(new.progress, SignInStatus::Waiting);
    stage.hub = another_hub(&stage.folder, stage.clock.clone(), stage.store.clone());
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}
