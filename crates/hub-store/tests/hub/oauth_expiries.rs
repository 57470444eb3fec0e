//! Concurrent calls at three hubs on one store while tokens expire: each token is refreshed once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use linchpin::testing::authority::Authority;
use linchpin_hub_core::hub::oauth::SignInStatus;
use linchpin_hub_core::platform::{Platform, SystemPlatform};
use linchpin_hub_core::store::{CallStatus, Store};
use linchpin_hub_store::{Postgres, Sqlite};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, another_hub, local_user};
use crate::oauth_fixture::{call, start_sign_in};

const CALLERS: usize = 64;
/// Longer than the lifetime of a token.
const BEYOND_TOKEN_LIFETIME: Duration = Duration::from_hours(2);

/// Clock of the authority, used by all hubs.
struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl Platform for Clock {
    fn now(&self) -> Timestamp {
        (self.0)().try_into().unwrap()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemPlatform.fill_random(bytes);
    }
}

async fn assert_refreshed_once(stores: [Arc<dyn Store>; 3], expiries: usize) {
    let (place, authority) =
        (tempfile::tempdir().unwrap(), Authority::start(Authority::conforming()).await.unwrap());
    let clock = Arc::new(Clock(Box::new(authority.clock())));
    let hubs = stores.map(|store| another_hub(&place, clock.clone(), store));
    let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
        "authentication": { "type": "oauth" }, "keep_history": false });
    hubs[0].registry().add_server(local_user(ADA), form).await.unwrap();
    let (query, proof) = start_sign_in(&hubs[0], &authority, None).await;
    assert_eq!(hubs[1].complete_sign_in(&query, &proof).await.unwrap().progress, SignInStatus::Done);
    for expiry in 1..=expiries {
        authority.advance(BEYOND_TOKEN_LIFETIME);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let hub = hubs[caller % hubs.len()].clone();
            callers.spawn(async move { call(&hub, local_user(ADA), "greet").await });
        }
        for call in callers.join_all().await {
            assert_eq!(call.status, CallStatus::Success, "{expiry}: {call:?}");
        }
        if expiry.is_multiple_of(100) {
            assert_eq!(authority.observations().refreshes, expiry);
        }
    }
    let seen = authority.observations();
    assert_eq!((seen.with_grant_type("refresh_token").count(), seen.refreshes), (expiries, expiries));
    assert_eq!((seen.reuses, seen.revoked_families, seen.authorizations), (0, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_file() {
    let place = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
    assert_refreshed_once([store.clone(), store.clone(), store], 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_database() {
    let url = test_postgres::server().url(&test_postgres::server().create_database());
    let mut stores = Vec::<Arc<dyn Store>>::new();
    for _ in 0..3 {
        stores.push(Arc::new(Postgres::open(&url).await.unwrap()));
    }
    assert_refreshed_once(stores.try_into().unwrap_or_else(|_| unreachable!()), 1_000).await;
}
