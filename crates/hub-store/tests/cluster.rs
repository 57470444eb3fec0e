//! Cluster of hubs on one database: changes and events reach all hubs in the same order, even without notifications.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use linchpin_hub_core::audit::AuditEntry;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::events::{EventLog, EventSubscription, Lagged, NewEvent};
use linchpin_hub_core::id::{CallId, ServerId, TenantId};
use linchpin_hub_core::platform::{Platform, SystemPlatform};
use linchpin_hub_core::store::{
    Batch, CachedStore, CallOutcome, CallRecord, CallStatus, ClusterClock, Document, DocumentKey,
    DocumentKind, Store, StoreChange,
};
use linchpin_hub_store::{Durability, Postgres};
use serde_json::{Value, json};
use test_postgres::server;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ADA: TenantId = TenantId::from_u128(1);
const BOB: TenantId = TenantId::from_u128(2);
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

async fn join(database: &str) -> Arc<dyn Store> {
    let store = Postgres::join(&server().url(database), Durability::default(), Arc::new(SystemPlatform))
        .await
        .unwrap();
    Arc::new(CachedStore::new(Arc::new(store)))
}

fn events(store: &Arc<dyn Store>) -> &EventLog {
    &store.shared().unwrap().events
}

async fn next(watching: &mut EventSubscription) -> Result<(u64, Value), Lagged> {
    let event = timeout(TEST_TIMEOUT, watching.next()).await.unwrap();
    event.map(|event| (event.number, event.body.clone()))
}

fn put(id: &str, version: u64) -> Batch {
    let document = Document::new(DocumentKey::new(DocumentKind::Agent, id), &version).unwrap();
    Batch::new().change(StoreChange::Put { document, version })
}

async fn body(store: &Arc<dyn Store>, id: &str) -> Value {
    store.document(ADA, &DocumentKey::new(DocumentKind::Agent, id)).await.unwrap().unwrap().document.body
}

/// Publishes an event and waits for it at another hub; all earlier changes are known there then.
async fn publish_and_wait(from: &Arc<dyn Store>, to: &mut EventSubscription, what: Value) {
    events(from).publish(ADA, NewEvent::new("test", what.clone()));
    while next(to).await.unwrap().1 != what {}
}

#[tokio::test]
async fn what_one_changes_no_other_remembers() {
    let database = server().create_database();
    let (one, other) = (join(&database).await, join(&database).await);
    one.commit(ADA, put("a", 0)).await.unwrap();
    let mut watching = events(&other).subscribe(ADA, None);
    for version in 1..50 {
        assert_eq!(body(&other, "a").await, json!(version - 1));
        one.commit(ADA, put("a", version)).await.unwrap();
        publish_and_wait(&one, &mut watching, json!(version)).await;
        assert_eq!(body(&other, "a").await, json!(version));
    }
    // The same with many changes in one batch.
    let many = (0..500).fold(put("a", 50), |batch, number| {
        batch.change(put(&format!("many-{number}"), 0).changes.remove(0))
    });
    one.commit(ADA, many).await.unwrap();
    publish_and_wait(&one, &mut watching, json!("many")).await;
    assert_eq!(body(&other, "a").await, json!(50));
}

#[tokio::test]
async fn everybody_hears_the_same_in_the_same_order() {
    let database = server().create_database();
    let hubs = [join(&database).await, join(&database).await, join(&database).await];
    let mut all = hubs.each_ref().map(|hub| events(hub).subscribe(ADA, None));
    for number in 0..300 {
        events(&hubs[number % 3])
            .publish(if number % 10 == 0 { BOB } else { ADA }, NewEvent::new("test", json!(number)));
    }
    let mut heard = Vec::new();
    for watching in &mut all {
        let mut own = Vec::new();
        while own.len() < 270 {
            own.push(next(watching).await.unwrap());
        }
        heard.push(own);
    }
    assert!(heard[0] == heard[1] && heard[1] == heard[2]);
    assert!(heard[0].is_sorted_by_key(|(number, _)| *number));
    let mut bodies: Vec<_> = heard[0].iter().map(|(_, body)| body.as_u64().unwrap()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..300).filter(|number| number % 10 != 0).collect::<Vec<_>>());
    // A subscriber can resume at another hub, even at one that joined later.
    let late = join(&database).await;
    for hub in [&hubs[1], &late] {
        assert_eq!(hub.shared().unwrap().event_log_id, hubs[0].shared().unwrap().event_log_id);
        let mut again = events(hub).subscribe(ADA, Some(heard[0][99].0));
        let rest = [next(&mut again).await.unwrap(), next(&mut again).await.unwrap()];
        assert_eq!(rest[..], heard[0][100..102]);
    }
}

#[tokio::test]
async fn what_is_done_is_told_with_it_whoever_ends_then() {
    let database = server().create_database();
    let (one, other) = (join(&database).await, join(&database).await);
    let mut watching = events(&other).subscribe(ADA, None);
    let told = |text: &str| NewEvent::new("test", json!(text));
    one.commit(ADA, put("a", 0).with_event(told("first")).with_event(told("second"))).await.unwrap();
    one.commit(ADA, put("a", 0).with_event(told("not done"))).await.unwrap_err();
    one.commit(BOB, put("a", 0).with_event(told("not theirs"))).await.unwrap();
    one.commit(ADA, put("a", 1).with_event(told("last"))).await.unwrap();
    drop(one);
    let mut heard = Vec::new();
    while heard.last() != Some(&json!("last")) {
        heard.push(next(&mut watching).await.unwrap().1);
    }
    assert_eq!(heard, ["first", "second", "last"]);
}

#[tokio::test]
async fn a_notice_that_is_lost_costs_a_moment() {
    let database = server().create_database();
    let (one, other) = (join(&database).await, join(&database).await);
    one.commit(ADA, put("a", 0)).await.unwrap();
    body(&other, "a").await;
    let mut watching = events(&other).subscribe(ADA, None);
    // No `NOTIFY` is sent.
    server().sql(
        &database,
        "ALTER FUNCTION pg_catalog.pg_notify(TEXT, TEXT) RENAME TO was_notify;
        CREATE FUNCTION pg_catalog.pg_notify(TEXT, TEXT) RETURNS VOID LANGUAGE SQL AS 'SELECT'",
    );
    one.commit(ADA, put("a", 1)).await.unwrap();
    publish_and_wait(&one, &mut watching, json!(1)).await;
    assert_eq!(body(&other, "a").await, json!(1));
    // The connections that listen are lost.
    server().sql(
        &database,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    while one.commit(ADA, put("a", 2)).await.is_err_and(|error| error.code() == "store_unavailable") {}
    publish_and_wait(&one, &mut watching, json!(2)).await;
    assert_eq!(body(&other, "a").await, json!(2));
}

#[tokio::test]
async fn whoever_was_away_for_too_long_looks_at_everything_again() {
    let database = server().create_database();
    let (one, other) = (join(&database).await, join(&database).await);
    one.commit(ADA, put("a", 0)).await.unwrap();
    let mut watching = events(&other).subscribe(ADA, None);
    publish_and_wait(&one, &mut watching, json!("here")).await;
    body(&other, "a").await;
    server().sql(&database, "BEGIN; LOCK TABLE news; UPDATE documents SET body = '77', version = 7;
        DELETE FROM news; INSERT INTO news SELECT 1000, now(), '', NULL, 'hub', 'null'; NOTIFY linchpin_news; COMMIT");
    assert_eq!(next(&mut watching).await, Err(Lagged));
    assert_eq!(body(&other, "a").await, json!(77));
}

/// World with a wrong clock.
struct WrongClock(SignedDuration);

impl Platform for WrongClock {
    fn now(&self) -> Timestamp {
        SystemPlatform.now() + self.0
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemPlatform.fill_random(bytes);
    }
}

#[tokio::test]
async fn all_go_by_the_clock_of_the_database() {
    let database = server().create_database();
    for wrong in [SignedDuration::from_hours(-30), SignedDuration::ZERO, SignedDuration::from_mins(7)] {
        let world = Arc::new(WrongClock(wrong));
        let url = server().url(&database);
        let store = Arc::new(Postgres::join(&url, Durability::default(), world.clone()).await.unwrap());
        let off = ClusterClock::new(world, store).now().duration_since(SystemPlatform.now()).abs();
        assert!(off < SignedDuration::from_secs(1), "{wrong}: {off}");
    }
}

fn running(id: u128) -> Batch {
    Batch::new().change(StoreChange::InsertCall(Box::new(call(id))))
}

fn call(id: u128) -> CallRecord {
    let at = Timestamp::UNIX_EPOCH;
    CallRecord {
        id: CallId::from_u128(id),
        server: ServerId::from_u128(1),
        tool: "echo".into(),
        subject: "user:1".into(),
        status: CallStatus::Running,
        digest: Digest::of("test").finish(),
        arguments: None,
        result: None,
        error: None,
        created: at,
        started: Some(at),
        completed: None,
    }
}

#[tokio::test]
async fn of_two_that_are_about_the_same_call_one_is_done() {
    let store = join(&server().create_database()).await;
    for round in 0..5_u128 {
        let mut all = JoinSet::new();
        // Most batches are grouped; some of them conflict.
        for number in 0..200 {
            let entry = AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "call.intent");
            let (store, batch) = (store.clone(), running(round * 1_000 + number % 150 + 1).audit(entry));
            all.spawn(async move { store.commit(ADA, batch).await.map_err(|error| error.code()) });
        }
        let outcomes = timeout(TEST_TIMEOUT, all.join_all()).await.unwrap();
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err("call_exists")).count(), 50);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 150);
        assert_eq!(store.audit_head(ADA).await.unwrap().number, 150 * (u64::try_from(round).unwrap() + 1));
    }
}

/// Commits all batches concurrently, and returns their outcomes in order.
async fn all_at_once(
    store: &Arc<dyn Store>,
    batches: Vec<(TenantId, Batch)>,
) -> Vec<Result<(), &'static str>> {
    let mut all = JoinSet::new();
    for (place, (tenant, batch)) in batches.into_iter().enumerate() {
        let store = store.clone();
        all.spawn(async move { (place, store.commit(tenant, batch).await.map_err(|error| error.code())) });
    }
    let mut outcomes = timeout(TEST_TIMEOUT, all.join_all()).await.unwrap();
    outcomes.sort_unstable_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Returns a call whose fields all differ from those of other calls.
fn unique_call(tenant: TenantId, number: u8) -> CallRecord {
    let mut call = call(u128::from(number) + 1);
    let own = |what: &str| format!("{what} {number} of {tenant}");
    (call.tool, call.subject) = (own("tool"), own("subject"));
    call.server = ServerId::from_u128(u128::from(number) + 1_000);
    call.digest = Digest::of("arguments").part(own("")).finish();
    (call.arguments, call.error) = (Some(own("arguments").into()), Some(own("warning").into()));
    call.created = Timestamp::from_millisecond(i64::from(number)).unwrap();
    call.started = Timestamp::from_millisecond(2_000 + i64::from(number)).ok();
    match number % 20 {
        7 => call.arguments = Some(vec![number; 100 << 10]),
        8 => (call.arguments, call.error) = (None, None),
        9 => call.tool.push('\0'),
        _ => {}
    }
    call
}

#[tokio::test]
async fn calls_that_are_kept_together_are_kept_as_they_are() {
    let store = join(&server().create_database()).await;
    let calls: Vec<_> = (0..100).flat_map(|number| [(ADA, number), (BOB, number)]).collect();
    for tenant in [ADA, BOB] {
        store.commit(tenant, put("a", 0)).await.unwrap();
    }
    let begin = |&(tenant, number): &(TenantId, u8)| {
        let version = if number % 20 == 10 { 7 } else { 1 };
        let same = StoreChange::RequireVersions(vec![(DocumentKey::new(DocumentKind::Agent, "a"), version)]);
        (
            tenant,
            Batch::new().change(same).change(StoreChange::InsertCall(Box::new(unique_call(tenant, number)))),
        )
    };
    let outcomes = all_at_once(&store, calls.iter().map(begin).collect()).await;
    for ((_, number), outcome) in calls.iter().zip(outcomes) {
        let expected = match number % 20 {
            9 => Err("unsupported_character"),
            10 => Err("version_conflict"),
            _ => Ok(()),
        };
        assert_eq!(outcome, expected, "{number}");
    }

    let outcome = |&(tenant, number): &(TenantId, u8)| CallOutcome {
        status: if number % 3 == 0 { CallStatus::Error } else { CallStatus::Success },
        result: (number % 4 != 0).then(|| format!("result {number} of {tenant}").into()),
        error: (number % 3 == 0).then(|| format!("error {number} of {tenant}").into()),
        at: Timestamp::from_millisecond(5_000 + i64::from(number)).unwrap(),
        retains_arguments: number % 5 != 0,
    };
    let end = |one: &(TenantId, u8)| {
        let call = CallId::from_u128(u128::from(one.1) + 1);
        (one.0, Batch::new().change(StoreChange::FinishCall { call, outcome: outcome(one) }))
    };
    // Some calls finish twice, some were not started.
    let twice = calls.iter().filter(|(_, number)| number % 20 == 11).map(end);
    let over = all_at_once(&store, calls.iter().map(end).chain(twice).collect()).await;
    let count = |wanted: Result<(), &str>| over.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(Ok(())), count(Err("not_found")), count(Err("call_state_conflict"))), (180, 20, 10));

    for (tenant, number) in calls.into_iter().filter(|(_, number)| !matches!(number % 20, 9 | 10)) {
        let CallOutcome { status, result, error, at, retains_arguments: keeps_arguments } =
            outcome(&(tenant, number));
        let own = unique_call(tenant, number);
        let arguments = own.arguments.clone().filter(|_| keeps_arguments);
        let expected = CallRecord { status, result, error, completed: Some(at), arguments, ..own };
        let id = CallId::from_u128(u128::from(number) + 1);
        assert_eq!(store.call(tenant, id).await.unwrap().unwrap(), expected);
    }
}

#[tokio::test]
async fn nobody_is_gone_who_could_not_show_that_they_are_there() {
    let database = server().create_database();
    let (one, other) = (join(&database).await, join(&database).await);
    one.commit(ADA, running(1)).await.unwrap();
    other.commit(ADA, running(2)).await.unwrap();
    let found = async |store: &Arc<dyn Store>| {
        store.abandoned_calls(ADA).await.unwrap().iter().map(|call| call.id).collect::<Vec<_>>()
    };
    assert_eq!((found(&one).await, found(&other).await), (vec![], vec![]));
    drop(one);
    // An outage of the database: all heartbeats are old.
    server().sql(
        &database,
        "UPDATE hubs SET seen = seen - INTERVAL '1 minute', since = since - INTERVAL '1 hour'",
    );
    assert_eq!(found(&other).await, [], "its own heartbeat is late, too");
    let beat = "SELECT count(*) FROM hubs WHERE since > now() - INTERVAL '10 seconds' AND seen > now() - INTERVAL '10 seconds'";
    while server().sql(&database, beat) != "1" {
        tokio::task::yield_now().await;
    }
    assert_eq!(found(&other).await, []);
    // The other hub has sent heartbeats for a while, and the first one has not.
    server().sql(&database, "UPDATE hubs SET since = since - INTERVAL '1 minute'");
    assert_eq!(found(&other).await, [CallId::from_u128(1)]);
}
