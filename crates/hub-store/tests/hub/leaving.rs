//! Clients that disconnect while something changes, and users who are signed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin_hub_core::connection::Status;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::hub::sessions::Remote;
use linchpin_hub_core::store::{Batch, Cached, Change, Document, Key, Kind, Store};
use linchpin_hub_core::{Scope, Subject};
use serde_json::json;

use crate::aside::soon;
use crate::gated::{Asked, Gate, Gated, put};
use crate::stage::{ADA, Stage, agent_of, person};

/// Waits until something is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Begins a change and disconnects while the store is at work on it, which then goes on.
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
        tool.state == linchpin_hub_core::pin::State::Trusted
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
        // The first may read the store, the second may not.
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
