//! Resource subscriptions: updates in both eras, restoration after a lost connection, and the end of access.

use std::time::Duration;

use linchpin::Revision;
use linchpin_hub_core::events::EventSubscription;
use linchpin_hub_core::{Actor, ErrorKind};
use serde_json::{Value, json};

use crate::background_loop::RunningHub;
use crate::fixture::{ADA, Stage, agent_of, local_user};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const URI: &str = "memory://a";

/// Waits for the next event of this kind.
async fn next(events: &mut EventSubscription, kind: &str) -> Value {
    let found = async {
        loop {
            let event = events.next().await.unwrap();
            if event.kind == kind {
                return event.body.clone();
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, found).await.unwrap()
}

async fn uris(stage: &Stage, actor: Actor) -> Vec<String> {
    let listed = stage.hub.calls().subscriptions(actor, "up").await.unwrap();
    listed.into_iter().map(|subscription| subscription.uri).collect()
}

#[tokio::test]
async fn an_update_is_an_event_in_both_eras() {
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let stage = Stage::new().await;
        let changes = json!({ "revision": revision.as_str() });
        stage.hub.registry().update_server(local_user(ADA), "up", changes).await.unwrap();
        let agent = stage.agent("Reader", "auto", &[]).await;
        let mut events = stage.hub.events().subscribe(ADA, None);
        let calls = stage.hub.calls();
        for _ in 0..2 {
            assert!(calls.subscribe(agent, "up", URI).await.unwrap().is_connected);
        }
        assert_eq!(uris(&stage, agent).await, [URI]);
        assert!(uris(&stage, local_user(ADA)).await.is_empty(), "each caller has its own");
        stage.upstream.handle.resource_updated("memory://b");
        stage.upstream.handle.resource_updated(URI);
        let server = stage.hub.registry().server(local_user(ADA), "up").await.unwrap().id;
        let expected = json!({ "server": server, "uri": URI, "subject": agent.subject().to_string() });
        assert_eq!(next(&mut events, "resource.updated").await, expected);
        calls.unsubscribe(agent, "up", URI).await.unwrap();
        assert_eq!(next(&mut events, "resource.subscription_ended").await, expected);
        assert!(uris(&stage, agent).await.is_empty());
        let error = calls.unsubscribe(agent, "up", URI).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let actions = stage.actions().await;
        let count = |wanted: &str| actions.iter().filter(|action| *action == wanted).count();
        assert_eq!((count("resource.subscribed"), count("resource.unsubscribed")), (2, 1));
    }
}

#[tokio::test]
async fn a_subscription_is_restored_after_a_lost_connection() {
    let stage = Stage::new().await;
    let (calls, user) = (stage.hub.calls(), local_user(ADA));
    calls.subscribe(user, "up", URI).await.unwrap();
    let mut events = stage.hub.events().subscribe(ADA, None);
    stage.hub.registry().disconnect_server(user, "up").await.unwrap();
    next(&mut events, "resource.updated").await; // it may have changed in between
    assert!(calls.subscriptions(user, "up").await.unwrap()[0].is_connected);
    stage.upstream.handle.resource_updated(URI);
    next(&mut events, "resource.updated").await;
    assert_eq!(uris(&stage, user).await, [URI]);
}

#[tokio::test]
async fn a_subscription_ends_with_access() {
    let stage = Stage::new().await;
    let (calls, registry) = (stage.hub.calls(), stage.hub.registry());
    let agent = stage.agent("Reader", "auto", &[]).await;
    let mut events = stage.hub.events().subscribe(ADA, None);
    // The agent loses the server, the user loses nothing.
    for actor in [agent, local_user(ADA)] {
        calls.subscribe(actor, "up", URI).await.unwrap();
    }
    let changes = json!({ "servers": {} });
    stage.hub.identity().update_agent(local_user(ADA), agent_of(agent), changes).await.unwrap();
    let ended = next(&mut events, "resource.subscription_ended").await;
    assert_eq!(ended["subject"], agent.subject().to_string());
    assert_eq!(uris(&stage, local_user(ADA)).await, [URI]);
    let error = calls.subscribe(agent, "up", URI).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // A disabled server has no subscriptions.
    registry.enable_server(local_user(ADA), "up", false).await.unwrap();
    let ended = next(&mut events, "resource.subscription_ended").await;
    assert_eq!(ended["subject"], local_user(ADA).subject().to_string());
    assert!(uris(&stage, local_user(ADA)).await.is_empty());
}

#[tokio::test]
async fn a_subscription_ends_with_the_token_of_its_subject() {
    let stage = Stage::new().await;
    let running = RunningHub::new(&stage.hub);
    let (calls, identity) = (stage.hub.calls(), stage.hub.identity());
    let agent = stage.agent("Reader", "auto", &[]).await;
    let (_, view) = identity.issue_token(local_user(ADA), agent.subject(), "test", None).await.unwrap();
    let mut events = stage.hub.events().subscribe(ADA, None);
    calls.subscribe(agent, "up", URI).await.unwrap();
    identity.revoke_token(local_user(ADA), agent.subject(), view.id).await.unwrap();
    next(&mut events, "resource.subscription_ended").await;
    assert!(uris(&stage, agent).await.is_empty());
    running.end().await;
}

#[tokio::test]
async fn what_cannot_be_subscribed_to_is_refused() {
    let stage = Stage::new().await;
    let calls = stage.hub.calls();
    for uri in [String::new(), "x".repeat(8_193)] {
        let error = calls.subscribe(local_user(ADA), "up", &uri).await.unwrap_err();
        assert_eq!(error.field(), Some("uri"));
    }
    let error = calls.subscribe(local_user(ADA), "none", URI).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(uris(&stage, local_user(ADA)).await.is_empty());
}
