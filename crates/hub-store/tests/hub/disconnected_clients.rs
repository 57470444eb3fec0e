//! Clients that disconnect while something changes, users who are signed out, and reads that must not delay a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin_hub_core::connection::ConnectionStatus;
use linchpin_hub_core::events::NewEvent;
use linchpin_hub_core::hub::sessions::RequestClient;
use linchpin_hub_core::hub::users::ChangedBy;
use linchpin_hub_core::hub::{CallRequest, Hub, LOCAL_USER, ToolRef};
use linchpin_hub_core::store::{
    self, Batch, CachedStore, CallFilter, Document, DocumentKey, DocumentKind, DocumentStore, PageRequest,
    Store, StoreChange,
};
use linchpin_hub_core::{Actor, Subject};
use serde_json::json;

use crate::background_task::within_timeout;
use crate::faulty_store::{Effect, FaultyStore, Gate, StoreRequest, commits, stores};
use crate::fixture::{ADA, Stage, agent_of, local_user};

/// Waits until a condition holds.
async fn wait_until(mut is_so: impl AsyncFnMut() -> bool) {
    within_timeout(async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Starts a change, and disconnects while the store executes it; the change then continues.
async fn disconnect_during<T>(change: impl Future<Output = T>, gate: &Gate) {
    {
        let mut change = std::pin::pin!(change);
        tokio::select! {
            _ = &mut change => panic!("the store has not finished yet"),
            () = gate.reached() => {}
        }
    }
    gate.open();
}

async fn status(hub: &Hub, server: &str) -> ConnectionStatus {
    hub.registry().server(local_user(ADA), server).await.unwrap().status
}

#[tokio::test]
async fn a_change_of_a_server_is_finished_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(&stage.hub, "up").await, ConnectionStatus::Connected);
    let gate = store.hold(stores(DocumentKind::Server));
    disconnect_during(
        stage.hub.registry().update_server(local_user(ADA), "up", json!({"description": "new"})),
        &gate,
    )
    .await;
    wait_until(async || {
        let server = stage.hub.registry().server(local_user(ADA), "up").await.unwrap();
        server.description.as_deref() == Some("new") && server.status == ConnectionStatus::Disconnected
    })
    .await;
}

#[tokio::test]
async fn a_change_of_an_agent_is_finished_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    let gate = store.hold(stores(DocumentKind::Agent));
    let changes = json!({"servers": {"up": {"trusted": ["echo"]}}});
    disconnect_during(stage.hub.identity().update_agent(local_user(ADA), agent_of(agent), changes), &gate)
        .await;
    wait_until(async || {
        let tool = stage.hub.registry().tool(local_user(ADA), "mcp_up__echo").await.unwrap();
        tool.state == linchpin_hub_core::tool::pin::TrustState::Trusted
            && status(&stage.hub, "up").await == ConnectionStatus::Disconnected
    })
    .await;
}

#[tokio::test]
async fn a_document_is_cached_again_after_a_client_disconnected() {
    let place = tempfile::tempdir().unwrap();
    let inner = linchpin_hub_store::Sqlite::open(&place.path().join("hub.db")).unwrap();
    let gated = FaultyStore::new(Arc::new(inner));
    let reads = Arc::<AtomicUsize>::default();
    let count = reads.clone();
    gated.notify(move |asked| {
        count.fetch_add(usize::from(matches!(asked, StoreRequest::Document(_))), Ordering::SeqCst);
        false
    });
    let cached = CachedStore::new(gated.clone());
    let key = DocumentKey::new(DocumentKind::Agent, "a");
    let write = |version: u64| {
        let document = Document::new(key.clone(), &json!({ "was": version })).unwrap();
        cached.commit(ADA, Batch::new().change(StoreChange::Put { document, version }))
    };
    write(0).await.unwrap();
    let gate = gated.hold(stores(DocumentKind::Agent));
    disconnect_during(write(1), &gate).await;
    wait_until(async || gated.document(ADA, &key).await.unwrap().unwrap().version == 2).await;
    wait_until(async || {
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
    hub.identity().ensure_local_user().await.unwrap();
    let link = hub.identity().create_login_link().await.unwrap().unwrap();
    let here = RequestClient { address: None, host: "localhost".to_owned(), user: None };
    let session = hub.identity().redeem_login_link(&link, &here).await.unwrap();
    assert_eq!(session.actor, local_user(ADA));
    stage.call(session.actor, "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(hub, "up").await, ConnectionStatus::Connected);
    hub.identity().log_out(&session.cookie).await.unwrap();
    assert_eq!(status(hub, "up").await, ConnectionStatus::Disconnected);

    let user = hub.identity().add_user(local_user(ADA), "Bea").await.unwrap().id;
    stage.call(Actor::new(ADA, Subject::User(user)), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(status(hub, "up").await, ConnectionStatus::Connected);
    hub.identity().remove_user(local_user(ADA), user).await.unwrap();
    assert_eq!(status(hub, "up").await, ConnectionStatus::Disconnected);
}

#[tokio::test]
async fn watchers_receive_a_change_whose_client_disconnected() {
    let place = tempfile::tempdir().unwrap();
    let gated =
        FaultyStore::new(Arc::new(linchpin_hub_store::Sqlite::open(&place.path().join("hub.db")).unwrap()));
    let cached = CachedStore::new(gated.clone());
    let mut events = cached.events().subscribe(ADA, None);
    let document = Document::new(DocumentKey::new(DocumentKind::Agent, "a"), &json!({})).unwrap();
    let batch = Batch::new().change(StoreChange::Put { document, version: 0 });
    let gate = gated.hold(stores(DocumentKind::Agent));
    disconnect_during(cached.commit(ADA, batch.with_event(NewEvent::new("agent", json!("a")))), &gate).await;
    assert_eq!(within_timeout(events.next()).await.unwrap().body, json!("a"));
}

#[tokio::test]
async fn a_token_that_is_issued_during_a_password_change_is_not_stored() {
    let (stage, store) = Stage::gated().await;
    let (hub, user) = (&stage.hub, Subject::User(LOCAL_USER));
    hub.identity().ensure_local_user().await.unwrap();
    let gate = store.hold(stores(DocumentKind::Token));
    let change_password = async {
        gate.reached().await;
        let password = "another password".into();
        hub.identity()
            .set_password(local_user(ADA), LOCAL_USER, &password, ChangedBy::Operator)
            .await
            .unwrap();
        gate.open();
    };
    let issue = hub.identity().issue_token(local_user(ADA), user, "script", None);
    let (issued, ()) = tokio::join!(issue, change_password);
    assert_eq!(issued.unwrap_err().code(), "version_conflict");
    assert_eq!(hub.identity().tokens(local_user(ADA), user).await.unwrap(), []);
    hub.identity().issue_token(local_user(ADA), user, "script", None).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_stored_when_its_client_disconnects() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    let gate = store.hold(stores(DocumentKind::TenantKey)); // the first encryption creates the key
    disconnect_during(Box::pin(stage.call(agent, "echo", json!({"message": 1}))), &gate).await;
    let call = stage.call(agent, "echo", json!({"message": 1})).await.unwrap();
    wait_until(async || stage.hub.calls().call(agent, call.id).await.is_ok()).await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_stored_is_counted_in_the_next_entry() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Any", "auto", &[]).await;
    let call = || stage.call(agent, "echo", json!({"message": 1}));
    let is_open = |change: &StoreChange| matches!(change, StoreChange::InsertCall(_));
    for _ in 0..2 {
        store.once(commits(is_open), Effect::Lose);
        assert_eq!(call().await.unwrap_err().code(), "store_unavailable");
    }
    let id = call().await.unwrap().id;
    assert_eq!(stage.hub.calls().call(agent, id).await.unwrap().id, id);
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let refused: Vec<_> = rows.iter().filter(|row| row.action == "call.rejected").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0].fields["count"], &refused[0].fields["call"]), (&json!(3), &json!(id)));
}

#[tokio::test]
async fn a_refused_sign_in_does_not_wait_for_the_audit() {
    let (stage, store) = Stage::gated().await;
    stage.hub.identity().ensure_local_user().await.unwrap();
    let is_refusal = |batch: &Batch| batch.audit.iter().any(|entry| entry.action == "session.rejected");
    let gate = store.hold(move |asked| matches!(asked, StoreRequest::Commit(batch) if is_refusal(batch)));
    let password = "a wrong password".into();
    let signed_in =
        within_timeout(stage.hub.identity().log_in(ADA, "local", &password, &RequestClient::default())).await;
    assert_eq!(signed_in.unwrap_err().code(), "unauthorized");
    gate.reached().await;
    gate.open();
    wait_until(async || {
        let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
        rows.iter().any(|row| row.action == "session.rejected")
    })
    .await;
}

fn is_user(asked: &StoreRequest<'_>) -> bool {
    matches!(asked, StoreRequest::Document(key) if key.kind == DocumentKind::User)
}

#[tokio::test]
async fn an_outcome_is_stored_without_looking_up_the_caller() {
    let (stage, store) = Stage::gated().await;
    stage.hub.identity().ensure_local_user().await.unwrap();
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__wait".into()), json!({}));
    let call = stage.hub.calls().call_tool(local_user(ADA), wanted, false).await.unwrap();
    let gate = store.hold(is_user);
    stage.upstream.release.notify_one();
    let status = async || stage.store.call(ADA, call.id).await.unwrap().unwrap().status;
    wait_until(async || status().await == store::CallStatus::Success).await;
    gate.open();
}

#[tokio::test]
async fn a_list_looks_up_each_name_once() {
    let (stage, store) = Stage::gated().await;
    let hub = &stage.hub;
    hub.identity().ensure_local_user().await.unwrap();
    for _ in 0..3 {
        stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    }
    let reads = Arc::<AtomicUsize>::default();
    let count = reads.clone();
    store.notify(move |asked| {
        count.fetch_add(usize::from(is_user(asked)), Ordering::SeqCst);
        false
    });
    let paging = PageRequest { after: None, limit: 10 };
    let calls = hub.calls().list(local_user(ADA), CallFilter::default(), &paging).await.unwrap().items;
    let names: Vec<_> = calls.iter().map(|call| call.subject_name.as_deref()).collect();
    assert_eq!((names, reads.load(Ordering::SeqCst)), (vec![Some("local"); 3], 1));
}
