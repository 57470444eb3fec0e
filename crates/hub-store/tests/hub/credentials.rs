//! Credentials: separate for each agent, sent only to their server, and never shown.

use linchpin::auth::Secret;
use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::hub::{FeatureList, ToolFilter};
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::tool::pin::TrustState;
use serde_json::json;

use crate::fixture::{ADA, Stage, Upstream, agent_of, local_user};

const CANARY: &str = "canary-7c1d9e52a0b4";

async fn with(authentication: serde_json::Value, mode: &str) -> Stage {
    let stage = Stage::new().await;
    let changes = json!({"authentication": authentication, "credentials": mode});
    stage.hub.registry().update_server(local_user(ADA), "up", changes).await.unwrap();
    stage
}

#[tokio::test]
async fn each_agent_has_its_own() {
    let stage = with(json!({"type": "bearer"}), "per-agent").await;
    let (one, two) = (stage.agent("One", "auto", &[]).await, stage.agent("Two", "auto", &[]).await);
    let missing = stage.call(one, "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(missing.status, CallStatus::Error);
    assert!(missing.error.unwrap().contains("no credential is stored for the server `up`"));
    for (agent, text) in [(one, "token-of-one"), (two, "token-of-two")] {
        stage
            .hub
            .upstream()
            .set_credential(local_user(ADA), "up", Some(agent_of(agent)), &Secret::new(text))
            .await
            .unwrap();
    }
    for (agent, token) in
        [(one, "Bearer token-of-one"), (two, "Bearer token-of-two"), (one, "Bearer token-of-one")]
    {
        stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
        assert_eq!(stage.upstream.tokens.lock().unwrap().last().unwrap(), token);
    }
    // A new token is used from the next call on.
    stage
        .hub
        .upstream()
        .set_credential(local_user(ADA), "up", Some(agent_of(one)), &Secret::new("renewed"))
        .await
        .unwrap();
    stage.call(one, "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(stage.upstream.tokens.lock().unwrap().last().unwrap(), "Bearer renewed");
    stage.hub.upstream().delete_credential(local_user(ADA), "up", Some(agent_of(one))).await.unwrap();
    assert_eq!(stage.call(one, "echo", json!({"message": "a"})).await.unwrap().status, CallStatus::Error);
    assert_eq!(stage.call(two, "echo", json!({"message": "a"})).await.unwrap().status, CallStatus::Success);
    stage.hub.identity().remove_agent(local_user(ADA), agent_of(two)).await.unwrap();
    let left = stage.hub.upstream().credential(local_user(ADA), "up", Some(agent_of(two))).await.unwrap_err();
    assert_eq!(left.kind(), ErrorKind::NotFound, "deleted with the agent");
}

#[tokio::test]
async fn they_go_nowhere_else() {
    let stage = with(json!({"type": "bearer"}), "shared").await;
    stage.hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new(CANARY)).await.unwrap();
    let view = stage.hub.upstream().credential(local_user(ADA), "up", None).await.unwrap();
    assert_eq!(view.bound_to, stage.upstream.url.strip_suffix("/mcp").unwrap());
    // A rename retains the credential; another path deletes it, since it may belong to another service.
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"name": "Renamed"})).await.unwrap();
    assert!(stage.hub.upstream().credential(local_user(ADA), "up", None).await.is_ok());
    let path = format!("{}/other", stage.upstream.url);
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"url": path})).await.unwrap();
    assert_eq!(
        stage.hub.upstream().credential(local_user(ADA), "up", None).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    stage.hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new(CANARY)).await.unwrap();
    let other = Upstream::new().await;
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"url": other.url})).await.unwrap();
    assert_eq!(
        stage.hub.upstream().credential(local_user(ADA), "up", None).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(call.status, CallStatus::Error);
    assert!(!other.tokens.lock().unwrap().iter().any(|token| token.contains(CANARY)));
}

#[tokio::test]
async fn whatever_a_server_repeats_of_them_is_hidden() {
    for (authentication, sent) in [
        (json!({"type": "bearer"}), format!("Bearer {CANARY}")),
        (json!({"type": "basic", "username": "ada"}), "Basic YWRhOmNhbmFyeS03YzFkOWU1MmEwYjQ=".to_owned()),
        (json!({"type": "api-key", "header": "authorization-key"}), String::new()),
    ] {
        let stage = with(authentication, "shared").await;
        stage.hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new(CANARY)).await.unwrap();
        let call = stage.call(local_user(ADA), "token", json!({})).await.unwrap();
        assert_eq!(call.status, CallStatus::Success);
        assert_eq!(*stage.upstream.tokens.lock().unwrap().last().unwrap(), sent);
        let text = serde_json::to_string(&call).unwrap();
        assert!(!text.contains(CANARY) && (sent.is_empty() || !text.contains(&sent[6..])), "{text}");
        for file in std::fs::read_dir(stage.folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()));
        }
    }
}

#[tokio::test]
async fn what_it_says_of_itself_is_no_way_around_that() {
    let stage = with(json!({"type": "bearer"}), "shared").await;
    let hub = &stage.hub;
    hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new(CANARY)).await.unwrap();
    let text = format!("Sends {CANARY}");
    for name in ["send", &format!("send-{CANARY}")] {
        let tool = linchpin::Tool::new(name).description(&text);
        stage.upstream.handle.add(tool.handler(|_: linchpin::NoArgs| async { "done" })).unwrap();
    }
    let named = format!("about {CANARY}");
    stage
        .upstream
        .handle
        .add(linchpin::Resource::new("memory://b", named).handler(|| async { "b" }))
        .unwrap();
    hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    let tools = hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap();
    let sent = tools.iter().find(|tool| tool.tool == "send").unwrap();
    assert_eq!((&sent.definition["description"], sent.state), (&json!("Sends ***"), TrustState::New));
    let offers = hub.calls().list_feature(local_user(ADA), "up", FeatureList::Resources).await.unwrap();
    assert!(json!(offers).to_string().contains("about ***"));
    let tried = hub.upstream().test_server(local_user(ADA), "up").await.unwrap();
    let uri = format!("memory://{CANARY}");
    let error = hub.calls().read_resource(local_user(ADA), "up", &uri).await.unwrap_err();
    assert!(error.message().contains("***"), "{error}");
    for text in [format!("{tools:?}"), format!("{offers:?}"), format!("{tried:?}"), error.to_string()] {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn what_is_no_secret_is_refused() {
    let stage = with(json!({"type": "bearer"}), "shared").await;
    for bad in ["", "line\nbreak", "ä", &"x".repeat(16_385)] {
        let error = stage
            .hub
            .upstream()
            .set_credential(local_user(ADA), "up", None, &Secret::new(bad))
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("secret")));
    }
    let agent = stage.agent("One", "auto", &[]).await;
    let set = stage
        .hub
        .upstream()
        .set_credential(local_user(ADA), "up", Some(agent_of(agent)), &Secret::new("token"))
        .await;
    assert_eq!(set.unwrap_err().field(), Some("agent"));
    assert_eq!(
        stage
            .hub
            .upstream()
            .set_credential(agent, "up", None, &Secret::new("token"))
            .await
            .unwrap_err()
            .code(),
        "user_required"
    );
    stage
        .hub
        .registry()
        .update_server(local_user(ADA), "up", json!({"authentication": {"type": "none"}}))
        .await
        .unwrap();
    let set = stage.hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new("token")).await;
    assert_eq!(set.unwrap_err().field(), Some("authentication"));
}

#[tokio::test]
async fn keys_are_turned_over_while_everything_goes_on() {
    let stage = with(json!({"type": "bearer"}), "shared").await;
    stage.hub.upstream().set_credential(local_user(ADA), "up", None, &Secret::new(CANARY)).await.unwrap();
    let before = stage.call(local_user(ADA), "echo", json!({"message": "before"})).await.unwrap();
    for _ in 0..10 {
        let (call, turned) = tokio::join!(
            stage.call(local_user(ADA), "echo", json!({"message": "a"})),
            stage.hub.rotate_keys(local_user(ADA), false)
        );
        assert_eq!((call.unwrap().status, turned.unwrap().tenants), (CallStatus::Success, 1));
    }
    let (hub, _) = crate::fixture::open(&stage.folder, stage.clock.clone());
    assert_eq!(
        hub.calls().call(local_user(ADA), before.id).await.unwrap().summary.as_deref(),
        Some("before")
    );
    let agent = stage.agent("One", "auto", &[]).await;
    assert_eq!(hub.rotate_keys(agent, false).await.unwrap_err().code(), "user_required");
}
