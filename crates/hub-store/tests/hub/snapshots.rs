//! Changes between two calls: each takes effect in the next call, although calls use snapshots of the documents.

use linchpin::auth::Secret;
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{ErrorKind, Subject};
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user};

#[tokio::test]
async fn a_change_of_agent_server_or_token_takes_effect_in_the_next_call() {
    let stage = Stage::new().await;
    let (hub, user) = (&stage.hub, local_user(ADA));
    hub.registry().trust_server(user, "up").await.unwrap();
    let actor = stage.agent("Eve", "auto", &[]).await;
    let Subject::Agent(id) = actor.subject() else { panic!("an agent") };
    let (token, view) = hub.identity().issue_token(user, actor.subject(), "test", None).await.unwrap();
    let call = || stage.call(actor, "echo", json!({ "message": "a" }));
    let update = async |fields: Value| drop(hub.identity().update_agent(user, id, fields).await.unwrap());

    assert_eq!(hub.identity().authenticate(token.expose()).await.unwrap(), actor);
    assert_eq!(call().await.unwrap().status, CallStatus::Success);

    update(json!({ "servers": {} })).await;
    assert_eq!(call().await.unwrap_err().kind(), ErrorKind::NotFound);
    update(json!({ "servers": { "up": { "tools": ["fail"] } } })).await;
    assert_eq!(call().await.unwrap_err().kind(), ErrorKind::NotFound);
    update(json!({ "servers": { "up": {} } })).await;
    assert_eq!(call().await.unwrap().status, CallStatus::Success);

    update(json!({ "approval": "always-ask" })).await;
    let (pending, _) = stage.ask(actor, "echo", json!({ "message": "a" })).await;
    assert_eq!(pending.status, CallStatus::Pending);
    update(json!({ "approval": "auto" })).await;

    hub.registry().update_server(user, "up", json!({ "enabled": false })).await.unwrap();
    assert_eq!(call().await.unwrap().status, CallStatus::Denied);
    hub.registry().update_server(user, "up", json!({ "enabled": true })).await.unwrap();
    assert_eq!(call().await.unwrap().status, CallStatus::Success);

    update(json!({ "calls_per_minute": 2 })).await;
    let statuses = [call().await.unwrap().status, call().await.unwrap().status];
    assert_eq!(statuses, [CallStatus::Success; 2]);
    let limited = call().await.unwrap_err();
    assert_eq!(limited.code(), "rate_limited");
    assert!(limited.message().starts_with("the agent `Eve` is limited to 2 calls per minute"), "{limited}");
    update(json!({ "calls_per_minute": null })).await;

    hub.identity().revoke_token(user, actor.subject(), view.id).await.unwrap();
    assert_eq!(
        hub.identity().authenticate(token.expose()).await.unwrap_err().kind(),
        ErrorKind::Unauthenticated
    );
    hub.identity().remove_agent(user, id).await.unwrap();
    assert_eq!(call().await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_new_credential_is_sent_with_the_next_call() {
    let stage = Stage::new().await;
    let (hub, user) = (&stage.hub, local_user(ADA));
    let bearer = json!({ "authentication": { "type": "bearer" } });
    hub.registry().update_server(user, "up", bearer).await.unwrap();
    for secret in ["first-secret", "second-secret"] {
        hub.upstream().set_credential(user, "up", None, &Secret::new(secret)).await.unwrap();
        for _ in 0..2 {
            let call = stage.call(user, "echo", json!({ "message": secret })).await.unwrap();
            assert_eq!(call.status, CallStatus::Success, "{:?}", call.error);
            assert_eq!(call.summary.as_deref(), Some("***"), "the credential is redacted");
            assert_eq!(stage.upstream.tokens.lock().unwrap().last().unwrap(), &format!("Bearer {secret}"));
        }
    }
    hub.upstream().delete_credential(user, "up", None).await.unwrap();
    let call = stage.call(user, "echo", json!({ "message": "a" })).await.unwrap();
    assert_eq!(call.status, CallStatus::Error);
}
