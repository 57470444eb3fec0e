//! Clients that disconnect while something changes, users who are signed out, and reads that must not delay a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin_hub_core::connection::Status;
use linchpin_hub_core::events::Told;
use linchpin_hub_core::hub::sessions::Remote;
use linchpin_hub_core::hub::users::ChangedBy;
use linchpin_hub_core::hub::{Hub, LOCAL_USER, Wanted, Which};
use linchpin_hub_core::store::{self, Batch, Cached, CallFilter, Change, Document, Key, Kind, Paging, Store};
use linchpin_hub_core::{Scope, Subject};
use serde_json::json;

use crate::background_task::soon;
use crate::faulty_store::{Asked, Gate, Gated, Then, change, put};
use crate::fixture::{ADA, Stage, agent_of, person};

/// Waits until a condition holds.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Starts a change, and disconnects while the store executes it; the change then continues.
async fn leave<T>(change: impl Future<Output = T>, gate: &Gate) {
    {
        let mut change = std::pin::pin!(change);
        tokio::select! {
            _ = &mut change => panic!("the store has not finished yet"),
            () = gate.came() => {}
        }
    }
    gate.open();
}

async fn status(hub: &Hub, server: &str) -> Status {
    hub.server(person(ADA), server).await.unwrap().status
}

#[tokio::test]
async fn a_change_of_a_server_is_finished_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(&stage.hub, "up").await, Status::Connected);
    let gate = store.hold(put(Kind::Server));
    leave(stage.hub.update_server(person(ADA), "up", json!({"description": "new"})), &gate).await;
    until(async || {
        let server = stage.hub.server(person(ADA), "up").await.unwrap();
        server.description.as_deref() == Some("new") && server.status == Status::Disconnected
    })
    .await;
}

#[tokio::test]
async fn a_change_of_an_agent_is_finished_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    let gate = store.hold(put(Kind::Agent));
    let changes = json!({"servers": {"up": {"trusted": ["echo"]}}});
    leave(stage.hub.update_agent(person(ADA), agent_of(agent), changes), &gate).await;
    until(async || {
        let tool = stage.hub.tool(person(ADA), "mcp_up__echo").await.unwrap();
        tool.state == linchpin_hub_core::tool::pin::State::Trusted
            && status(&stage.hub, "up").await == Status::Disconnected
    })
    .await;
}

#[tokio::test]
async fn a_document_is_cached_again_after_a_client_disconnected() {
    let place = tempfile::tempdir().unwrap();
    let inner = linchpin_hub_store::Sqlite::open(&place.path().join("hub.db")).unwrap();
    let gated = Gated::new(Arc::new(inner));
    let reads = Arc::<AtomicUsize>::default();
    let count = reads.clone();
    gated.tell(move |asked| {
        count.fetch_add(usize::from(matches!(asked, Asked::Document(_))), Ordering::SeqCst);
        false
    });
    let cached = Cached::new(gated.clone());
    let key = Key::new(Kind::Agent, "a");
    let write = |version: u64| {
        let document = Document::new(key.clone(), &json!({ "was": version })).unwrap();
        cached.commit(ADA, Batch::new().change(Change::Put { document, version }))
    };
    write(0).await.unwrap();
    let gate = gated.hold(put(Kind::Agent));
    leave(write(1), &gate).await;
    until(async || gated.document(ADA, &key).await.unwrap().unwrap().version == 2).await;
    until(async || {
        // The first read may reach the store, the second must be served from the cache.
        assert_eq!(cached.document(ADA, &key).await.unwrap().unwrap().version, 2);
        let before = reads.load(Ordering::SeqCst);
        cached.document(ADA, &key).await.unwrap();
        reads.load(Ordering::SeqCst) == before
    })
    .await;
}

#[tokio::test]
async fn a_user_who_signs_out_or_is_removed_has_no_connections() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    hub.ensure_local().await.unwrap();
    let link = hub.one_time().await.unwrap().unwrap();
    let here = Remote { address: None, host: "localhost".to_owned(), user: None };
    let session = hub.sign_in_once(&link, &here).await.unwrap();
    assert_eq!(session.scope, person(ADA));
    stage.call(session.scope, "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(hub, "up").await, Status::Connected);
    hub.sign_out(&session.cookie).await.unwrap();
    assert_eq!(status(hub, "up").await, Status::Disconnected);

    let user = hub.add_user(person(ADA), "Bea").await.unwrap().id;
    stage.call(Scope::new(ADA, Subject::User(user)), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(hub, "up").await, Status::Connected);
    hub.remove_user(person(ADA), user).await.unwrap();
    assert_eq!(status(hub, "up").await, Status::Disconnected);
}

#[tokio::test]
async fn watchers_receive_a_change_whose_client_disconnected() {
    let place = tempfile::tempdir().unwrap();
    let gated = Gated::new(Arc::new(linchpin_hub_store::Sqlite::open(&place.path().join("hub.db")).unwrap()));
    let cached = Cached::new(gated.clone());
    let mut events = cached.events().watch(ADA, None);
    let document = Document::new(Key::new(Kind::Agent, "a"), &json!({})).unwrap();
    let batch = Batch::new().change(Change::Put { document, version: 0 });
    let gate = gated.hold(put(Kind::Agent));
    leave(cached.commit(ADA, batch.tell(Told::new("agent", json!("a")))), &gate).await;
    assert_eq!(soon(events.next()).await.unwrap().body, json!("a"));
}

#[tokio::test]
async fn a_token_that_is_issued_during_a_password_change_is_not_stored() {
    let (stage, store) = Stage::gated().await;
    let (hub, user) = (&stage.hub, Subject::User(LOCAL_USER));
    hub.ensure_local().await.unwrap();
    let gate = store.hold(put(Kind::Token));
    let change_password = async {
        gate.came().await;
        let password = "another password".into();
        hub.set_password(person(ADA), LOCAL_USER, &password, ChangedBy::Operator).await.unwrap();
        gate.open();
    };
    let issue = hub.issue_token(person(ADA), user, "script", None);
    let (issued, ()) = tokio::join!(issue, change_password);
    assert_eq!(issued.unwrap_err().code(), "changed_meanwhile");
    assert_eq!(hub.tokens(person(ADA), user).await.unwrap(), []);
    hub.issue_token(person(ADA), user, "script", None).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_stored_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    let gate = store.hold(put(Kind::TenantKey)); // the first encryption creates the key
    leave(Box::pin(stage.call(agent, "echo", json!({"message": 1}))), &gate).await;
    let call = stage.call(agent, "echo", json!({"message": 1})).await.unwrap();
    until(async || stage.hub.call(agent, call.id).await.is_ok()).await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_stored_is_counted_in_the_next_entry() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    let call = || stage.call(agent, "echo", json!({"message": 1}));
    let is_open = |change: &Change| matches!(change, Change::Open(_));
    for _ in 0..2 {
        store.once(change(is_open), Then::Lose);
        assert_eq!(call().await.unwrap_err().code(), "store_unavailable");
    }
    let id = call().await.unwrap().id;
    assert_eq!(stage.hub.call(agent, id).await.unwrap().id, id);
    let rows = stage.hub.audit(person(ADA), 0, 500).await.unwrap();
    let refused: Vec<_> = rows.iter().filter(|row| row.action == "call.refused").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0].fields["count"], &refused[0].fields["call"]), (&json!(3), &json!(id)));
}

#[tokio::test]
async fn a_refused_sign_in_does_not_wait_for_the_audit() {
    let (stage, store) = Stage::gated().await;
    stage.hub.ensure_local().await.unwrap();
    let is_refusal = |batch: &Batch| batch.audit.iter().any(|entry| entry.action == "session.refused");
    let gate = store.hold(move |asked| matches!(asked, Asked::Commit(batch) if is_refusal(batch)));
    let password = "a wrong password".into();
    let signed_in = soon(stage.hub.sign_in(ADA, "local", &password, &Remote::default())).await;
    assert_eq!(signed_in.unwrap_err().code(), "unauthorized");
    gate.came().await;
    gate.open();
    until(async || {
        let rows = stage.hub.audit(person(ADA), 0, 500).await.unwrap();
        rows.iter().any(|row| row.action == "session.refused")
    })
    .await;
}

fn is_user(asked: &Asked<'_>) -> bool {
    matches!(asked, Asked::Document(key) if key.kind == Kind::User)
}

#[tokio::test]
async fn an_outcome_is_stored_without_looking_up_the_caller() {
    let (stage, store) = Stage::gated().await;
    stage.hub.ensure_local().await.unwrap();
    let wanted = Wanted { tool: Which::Local("mcp_up__wait".into()), arguments: json!({}) };
    let call = stage.hub.call_tool(person(ADA), wanted, false).await.unwrap();
    let gate = store.hold(is_user);
    stage.upstream.go_on.notify_one();
    let status = async || stage.store.call(ADA, call.id).await.unwrap().unwrap().status;
    until(async || status().await == store::Status::Success).await;
    gate.open();
}

#[tokio::test]
async fn a_list_looks_up_each_name_once() {
    let (stage, store) = Stage::gated().await;
    let hub = &stage.hub;
    hub.ensure_local().await.unwrap();
    for _ in 0..3 {
        stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap();
    }
    let reads = Arc::<AtomicUsize>::default();
    let count = reads.clone();
    store.tell(move |asked| {
        count.fetch_add(usize::from(is_user(asked)), Ordering::SeqCst);
        false
    });
    let paging = Paging { after: None, limit: 10 };
    let calls = hub.calls(person(ADA), CallFilter::default(), &paging).await.unwrap().items;
    let names: Vec<_> = calls.iter().map(|call| call.subject_name.as_deref()).collect();
    assert_eq!((names, reads.load(Ordering::SeqCst)), (vec![Some("local"); 3], 1));
}
