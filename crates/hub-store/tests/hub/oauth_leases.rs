//! Refresh leases: a hub extends its lease as long as the refresh takes; a hub that has lost its lease overwrites no
//! newer grant; abandoned sign-ins are deleted.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use linchpin::testing::authority::Authority;
use linchpin_hub_core::hub::oauth::Progress;
use linchpin_hub_core::hub::{CallView, Hub};
use linchpin_hub_core::store::{Kind, Paging, Status, Stored};
use serde_json::json;
use tokio::time::{advance, pause};

use crate::background_loop::Runs;
use crate::background_task::Aside;
use crate::faulty_store::{Asked, Gated, put};
use crate::fixture::{ADA, Stage, another, person};
use crate::oauth_fixture::{call, greet, led_away, sign_in, used, with};

const LONG: Duration = Duration::from_secs(30);
/// A little longer than the interval of lease extensions.
const ALIVE: Duration = Duration::from_millis(10_010);
/// A little longer than the lifetime of a lease.
const LEASE: Duration = Duration::from_millis(30_010);
/// A little longer than the poll interval of a hub that waits for a lease.
const LOOK: Duration = Duration::from_millis(60);

/// Runs a test with a paused clock that only the test advances. Fails after 30 s of real time.
async fn still(test: impl Future<Output = ()>) {
    let (over, is_over) = sync_channel::<()>(1);
    // A blocking task prevents the runtime from advancing the paused clock automatically.
    let blocks = tokio::task::spawn_blocking(move || is_over.recv_timeout(LONG));
    pause();
    tokio::select! {
        () = test => drop(over),
        _ = blocks => panic!("the test takes too long"),
    }
}

/// Two hubs on one store whose token has expired.
async fn two(stage: &Stage, authority: &Authority) -> [(Arc<Hub>, Arc<Gated>); 2] {
    assert_eq!(sign_in(stage, authority, None).await, Progress::Done);
    let patient = json!({ "timeout_ms": 300_000 });
    stage.hub.update_server(person(ADA), "guarded", patient).await.unwrap();
    let two = [(), ()].map(|()| {
        let store = Gated::new(stage.store.clone());
        (another(&stage.place, stage.clock.clone(), store.clone()), store)
    });
    for (hub, _) in &two {
        assert_eq!(call(hub, person(ADA), "greet").await.status, Status::Success);
    }
    authority.expire_tokens();
    two
}

fn begin(hub: &Arc<Hub>) -> Aside<CallView> {
    let hub = hub.clone();
    Aside::new(async move { call(&hub, person(ADA), "greet").await })
}

fn looks_at(kind: Kind) -> impl Fn(&Asked<'_>) -> bool {
    move |asked| matches!(asked, Asked::Document(key) if key.kind == kind)
}

/// Returns ids and versions of the stored secrets of the server.
async fn kept(stage: &Stage) -> Vec<(String, u64)> {
    let server = stage.hub.server(person(ADA), "guarded").await.unwrap().id.to_string();
    let paging = Paging { after: None, limit: 10 };
    let all = stage.store.documents(ADA, Kind::Secret, Some(&server), &paging).await.unwrap().items;
    all.into_iter().map(|Stored { document, version }| (document.key.id, version)).collect()
}

#[tokio::test]
async fn a_lease_lasts_as_long_as_it_is_held() {
    let (stage, authority) = with("shared").await;
    let [(one, slow), (other, store)] = two(&stage, &authority).await;
    let test = async {
        let gate = slow.hold(put(Kind::Secret));
        let first = begin(&one);
        gate.came().await;
        let (written, looked) = (slow.tell(put(Kind::Lease)), store.tell(looks_at(Kind::Lease)));
        let second = begin(&other);
        looked.notified().await;
        for _ in 0..5 {
            advance(ALIVE).await;
            written.notified().await;
            looked.notified().await;
            advance(LOOK).await; // the next poll sees the extended lease
            looked.notified().await;
        }
        assert_eq!(authority.seen().refreshes, 1);
        gate.open();
        written.notified().await; // the lease is released
        advance(LOOK).await;
        for call in [first, second] {
            assert_eq!(call.done().await.status, Status::Success);
        }
    };
    still(test).await;
    let seen = authority.seen();
    assert_eq!((seen.refreshes, seen.reuses, seen.grants("refresh_token").count()), (1, 0, 1));
}

#[tokio::test]
async fn who_has_lost_the_lease_keeps_nothing_in_place_of_what_is_newer() {
    let (stage, authority) = with("shared").await;
    let authority = Arc::new(authority);
    let [(one, slow), (other, store)] = two(&stage, &authority).await;
    let (query, proof) = led_away(&other, &authority, None).await;
    let test = async {
        // The first hub has refreshed the token, and is about to store it.
        let seen = authority.clone();
        let gate = slow.hold(move |asked| {
            (looks_at(Kind::Secret)(asked) || put(Kind::Secret)(asked)) && seen.seen().refreshes == 1
        });
        let first = begin(&one);
        gate.came().await;
        slow.lose(put(Kind::Lease));
        let looked = store.tell(looks_at(Kind::Lease));
        let signs_in = Aside::new(async move { other.return_from_sign_in(&query, &proof).await });
        looked.notified().await;
        advance(LEASE).await;
        assert_eq!(signs_in.done().await.unwrap().progress, Progress::Done);
        let newer = kept(&stage).await;
        gate.open();
        assert_eq!(first.done().await.status, Status::Success, "its token is valid");
        assert_eq!(kept(&stage).await, newer, "a user has signed in since");
        // The newer grant is used from now on.
        slow.pass();
        let written = slow.tell(put(Kind::Lease));
        advance(LEASE).await;
        written.notified().await;
        written.notified().await;
        let before = used(&authority).len();
        assert_eq!(call(&one, person(ADA), "greet").await.status, Status::Success);
        assert_eq!((used(&authority).len(), authority.seen().refreshes), (before, 1));
        assert_eq!(kept(&stage).await, newer);
    };
    still(Box::pin(test)).await;
}

#[tokio::test]
async fn who_never_came_back_is_forgotten_by_and_by() {
    let (mut stage, authority) = with("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    let old = stage.hub.begin_sign_in(person(ADA), "guarded", None).await.unwrap();
    stage.clock.turn(599);
    let new = stage.hub.begin_sign_in(person(ADA), "guarded", None).await.unwrap();
    assert_eq!(kept(&stage).await.len(), 4, "the grant and three pending sign-ins");
    stage.clock.turn(1);
    let store = Gated::new(stage.store.clone());
    stage.hub = another(&stage.place, stage.clock.clone(), store.clone());
    Runs::once(&stage.hub, &store).await.end().await;
    assert_eq!(kept(&stage).await.len(), 2);
    assert_eq!(stage.hub.sign_in_view(person(ADA), &old.id).await.unwrap_err().code(), "not_found");
    let new = stage.hub.sign_in_view(person(ADA), &new.id).await.unwrap();
    assert_eq!(new.progress, Progress::Waiting);
    stage.hub = another(&stage.place, stage.clock.clone(), stage.store.clone());
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}
