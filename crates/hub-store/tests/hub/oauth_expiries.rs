//! Concurrent calls at three hubs on one store while tokens expire: each token is refreshed once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use linchpin::testing::authority::Authority;
use linchpin_hub_core::hub::oauth::Progress;
use linchpin_hub_core::platform::{System, World};
use linchpin_hub_core::store::{Status, Store};
use linchpin_hub_store::{Postgres, Sqlite};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, another, person};
use crate::oauth_fixture::{call, led_away};

const CALLERS: usize = 64;
/// Longer than the lifetime of a token.
const LONG: Duration = Duration::from_hours(2);

/// Clock of the authority, used by all hubs.
struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl World for Clock {
    fn now(&self) -> Timestamp {
        (self.0)().try_into().unwrap()
    }

    fn fill(&self, bytes: &mut [u8]) {
        System.fill(bytes);
    }
}

async fn renewed_once(stores: [Arc<dyn Store>; 3], expiries: usize) {
    let (place, authority) =
        (tempfile::tempdir().unwrap(), Authority::start(Authority::honest()).await.unwrap());
    let clock = Arc::new(Clock(Box::new(authority.clock())));
    let hubs = stores.map(|store| another(&place, clock.clone(), store));
    let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
        "authentication": { "type": "oauth" }, "keep_history": false });
    hubs[0].add_server(person(ADA), form).await.unwrap();
    let (query, proof) = led_away(&hubs[0], &authority, None).await;
    assert_eq!(hubs[1].return_from_sign_in(&query, &proof).await.unwrap().progress, Progress::Done);
    for expiry in 1..=expiries {
        authority.advance(LONG);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let hub = hubs[caller % hubs.len()].clone();
            callers.spawn(async move { call(&hub, person(ADA), "greet").await });
        }
        for call in callers.join_all().await {
            assert_eq!(call.status, Status::Success, "{expiry}: {call:?}");
        }
        if expiry.is_multiple_of(100) {
            assert_eq!(authority.seen().refreshes, expiry);
        }
    }
    let seen = authority.seen();
    assert_eq!((seen.grants("refresh_token").count(), seen.refreshes), (expiries, expiries));
    assert_eq!((seen.reuses, seen.revoked_families, seen.authorizations), (0, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_file() {
    let place = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
    renewed_once([store.clone(), store.clone(), store], 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_database() {
    let url = test_postgres::server().url(&test_postgres::server().database());
    let mut stores = Vec::<Arc<dyn Store>>::new();
    for _ in 0..3 {
        stores.push(Arc::new(Postgres::open(&url).await.unwrap()));
    }
    renewed_once(stores.try_into().unwrap_or_else(|_| unreachable!()), 1_000).await;
}
