//! Failures of a shared PostgreSQL database: outages, lost connections, a newer schema version, and conflicting writes
//! of several hubs.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use linchpin_hub_core::audit::{AuditEntry, ChainVerifier};
use linchpin_hub_core::error;
use linchpin_hub_core::id::TenantId;
use linchpin_hub_core::store::{
    AuditStore, Batch, Document, DocumentKey, DocumentKind, DocumentStore, MAX_PAGE_SIZE, PageRequest, Store,
    StoreChange,
};
use linchpin_hub_store::{Durability, Postgres};
use test_postgres::{Server, server};
use tokio::task::JoinSet;
use tokio::time::timeout;

const ADA: TenantId = TenantId::from_u128(1);
const BOB: TenantId = TenantId::from_u128(2);
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

fn put(kind: DocumentKind, id: &str) -> StoreChange {
    StoreChange::Put { document: Document::new(DocumentKey::new(kind, id), &1).unwrap(), version: 0 }
}

fn agent(id: &str) -> Batch {
    Batch::new().change(put(DocumentKind::Agent, id))
}

async fn open(database: &str) -> Arc<Postgres> {
    Arc::new(Postgres::open(&server().url(database)).await.unwrap())
}

async fn exists(store: &Postgres, id: &str) -> bool {
    store.document(ADA, &DocumentKey::new(DocumentKind::Agent, id)).await.unwrap().is_some()
}

/// Terminates all connections to a database.
fn terminate_connections(server: &Server, database: &str) {
    let sql =
        format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{database}'");
    server.sql("postgres", &sql);
}

#[tokio::test]
async fn two_hubs_write_one_chain() {
    let database = server().create_database();
    let stores = [open(&database).await, open(&database).await];
    let mut all = JoinSet::new();
    for number in 0..1_000 {
        let store = stores[number % 2].clone();
        let tenant = if number % 10 == 0 { BOB } else { ADA };
        let entry = AuditEntry::new(Timestamp::UNIX_EPOCH, "user:1", "call.intent").with("call", number);
        let batch = agent(&number.to_string()).audit(entry.clone()).audit(entry);
        all.spawn(async move { store.commit(tenant, batch).await.unwrap() });
    }
    timeout(TEST_TIMEOUT, all.join_all()).await.unwrap();
    for (tenant, count) in [(ADA, 1_800), (BOB, 200)] {
        let mut check = ChainVerifier::new(tenant, None);
        let mut after = 0;
        loop {
            let rows = stores[0].audit_entries(tenant, after, MAX_PAGE_SIZE).await.unwrap();
            let Some(last) = rows.last() else { break };
            after = last.number;
            for row in &rows {
                check.verify_entry(row).unwrap();
            }
        }
        assert_eq!(check.finish().unwrap().number, count);
        assert_eq!(stores[1].audit_head(tenant).await.unwrap().number, count);
    }
}

#[tokio::test]
async fn what_belongs_to_something_never_outlives_it() {
    let database = server().create_database();
    let (one, other) = (open(&database).await, open(&database).await);
    let key = DocumentKey::new(DocumentKind::Server, "s");
    for round in 0..50 {
        one.commit(ADA, Batch::new().change(put(DocumentKind::Server, "s"))).await.unwrap();
        let mut all = JoinSet::new();
        for number in 0..8 {
            let (store, id) = (one.clone(), format!("{round}-{number}"));
            let tool = Document::new(DocumentKey::new(DocumentKind::Tool, id), &1).unwrap().with_parent("s");
            let batch = Batch::new().change(StoreChange::RequireExists(key.clone()));
            let batch = batch.change(StoreChange::Put { document: tool, version: 0 });
            all.spawn(async move { store.commit(ADA, batch).await });
        }
        let parts = StoreChange::DeleteChildren { kind: DocumentKind::Tool, parent: "s".to_owned() };
        let gone = Batch::new().change(StoreChange::Delete(key.clone())).change(parts);
        other.commit(ADA, gone).await.unwrap();
        for outcome in timeout(TEST_TIMEOUT, all.join_all()).await.unwrap() {
            assert_eq!(outcome.err().map_or("not_found", |error| error.code()), "not_found");
        }
        let paging = PageRequest { after: None, limit: 100 };
        let left = other.documents(ADA, DocumentKind::Tool, Some("s"), &paging).await.unwrap();
        assert_eq!(left.items, [], "round {round}");
    }
}

#[tokio::test]
async fn two_that_are_in_each_others_way_both_get_through() {
    let database = server().create_database();
    let stores = [open(&database).await, open(&database).await];
    let mut done = 0;
    for round in 0..5 {
        let mut all = JoinSet::new();
        // Each hub writes ids that the other one writes next, in another tenant: only the database sees the conflict.
        for (index, tenant) in [ADA, BOB].into_iter().enumerate() {
            let ids =
                (0..40).map(|number| format!("{round}-{}", if index == 0 { number } else { 39 - number }));
            for id in ids {
                let (store, batch) =
                    (stores[index].clone(), Batch::new().change(put(DocumentKind::Token, &id)));
                all.spawn(async move { store.commit(tenant, batch).await });
            }
        }
        for outcome in timeout(TEST_TIMEOUT, all.join_all()).await.unwrap() {
            match outcome {
                Ok(()) => done += 1,
                Err(error) => assert_eq!(error.code(), "id_taken", "{error}"),
            }
        }
    }
    assert_eq!(done, 5 * 40, "each id was stored once");
}

#[tokio::test]
async fn a_database_that_was_away_is_used_again() {
    let server = Server::start();
    let database = server.create_database();
    let store = Postgres::open(&server.url(&database)).await.unwrap();
    store.commit(ADA, agent("before")).await.unwrap();
    assert!(exists(&store, "before").await);
    server.stop();
    for _ in 0..20 {
        for error in [
            store.commit(ADA, agent("meanwhile")).await.unwrap_err(),
            store.document(ADA, &DocumentKey::new(DocumentKind::Agent, "before")).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (error::ErrorKind::Unavailable, "store_unavailable"));
            let text = error.to_string();
            assert!(text.starts_with("the database is unreachable ("), "{text}");
            assert!(!text.contains("tester") && !text.contains(&database), "{text}");
        }
    }
    server.restart();
    let back = async {
        while store.commit(ADA, agent("after")).await.is_err() {
            tokio::task::yield_now().await;
        }
        while store.audit_head(ADA).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, back).await.unwrap();
    for (id, expected) in [("before", true), ("meanwhile", false), ("after", true)] {
        let found = timeout(TEST_TIMEOUT, async {
            loop {
                if let Ok(found) = store.document(ADA, &DocumentKey::new(DocumentKind::Agent, id)).await {
                    return found;
                }
            }
        });
        assert_eq!(found.await.unwrap().is_some(), expected, "{id}");
    }
}

#[tokio::test]
async fn a_connection_that_was_ended_is_made_again_and_nobody_notices() {
    let database = server().create_database();
    let store = open(&database).await;
    for round in 0..10 {
        terminate_connections(server(), &database);
        let id = round.to_string();
        store.commit(ADA, agent(&id)).await.unwrap();
        assert!(exists(&store, &id).await);
    }
}

#[tokio::test]
async fn what_may_have_been_kept_is_not_kept_again() {
    let database = server().create_database();
    let store = open(&database).await;
    store.commit(ADA, agent("before")).await.unwrap();
    // The connection is lost during the commit. A sequence also counts rolled-back transactions.
    server().sql(
        &database,
        "CREATE SEQUENCE ends;
         CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM nextval('ends'), pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER dying AFTER INSERT ON documents DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION die()",
    );
    let error = store.commit(ADA, agent("lost")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (error::ErrorKind::Unavailable, "store_unavailable"));
    assert!(error.to_string().contains("may or may not be stored"), "{error}");
    assert_eq!(server().sql(&database, "SELECT last_value FROM ends"), "1");
    server().sql(&database, "DROP TRIGGER dying ON documents");
    store.commit(ADA, agent("after")).await.unwrap();
    assert!(!exists(&store, "lost").await && exists(&store, "after").await);
}

#[tokio::test]
async fn one_that_cannot_be_done_takes_nobody_with_it() {
    let database = server().create_database();
    let store = open(&database).await;
    let mut all = JoinSet::new();
    for number in 0..200 {
        let store = store.clone();
        // PostgreSQL rejects U+0000 in text columns and in the audit.
        let zero = |wanted: i32| if number % 4 == wanted { "\0" } else { "" };
        let batch = agent(&format!("{number}{}", zero(1)));
        let batch =
            batch.audit(AuditEntry::new(Timestamp::UNIX_EPOCH, &format!("hub{}", zero(2)), "agent.added"));
        all.spawn(async move { (number, store.commit(ADA, batch).await) });
    }
    for (number, outcome) in timeout(TEST_TIMEOUT, all.join_all()).await.unwrap() {
        let code = outcome.map_or_else(|error| error.code(), |()| "done");
        assert_eq!(
            code,
            if matches!(number % 4, 1 | 2) { "unsupported_character" } else { "done" },
            "{number}"
        );
        assert_eq!(exists(&store, &number.to_string()).await, code == "done");
    }
    assert_eq!(store.audit_head(ADA).await.unwrap().number, 100);
    let error = store.document(ADA, &DocumentKey::new(DocumentKind::Agent, "\0")).await.unwrap_err();
    assert_eq!(error.kind(), error::ErrorKind::Invalid);
}

#[tokio::test]
async fn many_can_start_at_once() {
    let database = server().create_database();
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let url = server().tcp_url(&database);
        all.spawn(async move { Postgres::open(&url).await.map(drop) });
    }
    for outcome in timeout(TEST_TIMEOUT, all.join_all()).await.unwrap() {
        outcome.unwrap();
    }
    assert_eq!(server().sql(&database, "SELECT * FROM schema_version"), "3");
}

#[tokio::test]
async fn a_newer_hub_is_asked_for() {
    let database = server().create_database();
    drop(open(&database).await);
    server().sql(&database, "UPDATE schema_version SET version = 99");
    let error = Postgres::open(&server().url(&database)).await.err().unwrap();
    assert_eq!(error.code(), "store_too_new");
    let text = "the database was used by a newer hub: run that version, or restore an older backup";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn the_machine_is_waited_for_when_that_is_asked() {
    for (durability, expected) in [(Durability::Process, "off"), (Durability::Power, "on")] {
        let database = server().create_database();
        let store = Postgres::open_with(&server().url(&database), durability).await.unwrap();
        server().sql(
            &database,
            "CREATE TABLE seen (what TEXT);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
             CREATE TRIGGER seeing AFTER INSERT ON documents FOR EACH ROW EXECUTE FUNCTION see()",
        );
        store.commit(ADA, agent("1")).await.unwrap();
        assert_eq!(server().sql(&database, "SELECT * FROM seen"), expected);
    }
}

#[tokio::test]
async fn an_url_that_is_of_no_use_is_told_without_what_it_says() {
    let url = server().url("no_such");
    for (url, expected) in [
        ("mysql://hub:hunter2@db/hub", "invalid database URL"),
        ("host=db user=hub password=hunter2", "invalid database URL"),
        ("postgres://hub:hunter2%@db:port/hub", "invalid database URL"),
        ("postgres://hub:hunter2@db/hub?hunter2=1", "invalid database URL"),
        ("postgres://hub:hunter2@/hub", "has no host"),
        ("postgres://hub:hunter2@db/hub?sslmode=verify-all", "invalid database URL"),
        (
            "postgres://hub:hunter2@db/hub?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch",
            "the sslrootcert `/no/such` of the database URL",
        ),
        (
            "postgres://hub:hunter2@db/hub?sslrootcert=%2Fdev%2Fnull&sslmode=verify-ca",
            "the file contains no certificate",
        ),
        ("postgres://hub:hunter2@%2Fno%2Fsuch%2Ffolder/hub", "is unreachable"),
        (&url, "the database does not exist"),
    ] {
        let error = Postgres::open(url).await.err().unwrap();
        let text = format!("{error} {error:?}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn whoever_may_not_make_tables_is_told() {
    let database = server().create_database();
    server().sql(&database, "CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let url = server().url(&database).replace("tester@", "guest@");
    let error = Postgres::open(&url).await.err().unwrap();
    assert!(error.to_string().starts_with("the database user lacks privileges"), "{error}");
}
