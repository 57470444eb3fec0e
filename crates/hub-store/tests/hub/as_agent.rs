//! Calls of a user with the credential of an agent.

use linchpin::auth::Secret;
use linchpin_hub_core::hub::{CallRequest, ToolRef};
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{Actor, ErrorKind, Result};
use serde_json::json;

use crate::fixture::{ADA, Stage, agent_of, local_user};

async fn try_tool(stage: &Stage, actor: Actor, agent: &str) -> Result<linchpin_hub_core::hub::CallView> {
    let tool = ToolRef::Qualified("mcp_up__token".into());
    let request = CallRequest { as_agent: Some(agent.to_owned()), ..CallRequest::new(tool, json!({})) };
    stage.hub.calls().call_tool(actor, request, true).await
}

#[tokio::test]
async fn a_user_tries_a_tool_with_the_credential_of_an_agent() {
    let stage = Stage::new().await;
    let user = local_user(ADA);
    let error = try_tool(&stage, user, "One").await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("as_agent")), "{error}");
    let changes = json!({ "authentication": { "type": "bearer" }, "credentials": "per-agent" });
    stage.hub.registry().update_server(user, "up", changes).await.unwrap();
    let (one, two) = (stage.agent("One", "auto", &[]).await, stage.agent("Two", "auto", &[]).await);
    for (agent, secret) in [(one, "token-of-one"), (two, "token-of-two")] {
        let agent = Some(agent_of(agent));
        stage.hub.upstream().set_credential(user, "up", agent, &Secret::new(secret)).await.unwrap();
    }
    for (name, agent) in [("One".to_owned(), one), (agent_of(two).to_string(), two)] {
        stage.upstream.tokens.lock().unwrap().clear();
        let call = try_tool(&stage, user, &name).await.unwrap();
        assert_eq!((call.status, call.subject), (CallStatus::Success, user.subject().to_string()));
        let secret = if agent == one { "Bearer token-of-one" } else { "Bearer token-of-two" };
        assert_eq!(stage.upstream.tokens.lock().unwrap().last().unwrap(), secret);
        let entries = stage.hub.audit().entries(user, 0, 500).await.unwrap();
        let is_intent =
            |action: &str, id: &serde_json::Value| action == "call.intent" && *id == call.id.to_string();
        let intent = entries.iter().find(|entry| is_intent(&entry.action, &entry.fields["call"])).unwrap();
        assert_eq!(intent.actor, user.subject().to_string());
        assert_eq!(intent.fields["as_agent"], agent_of(agent).to_string());
    }
    let error = try_tool(&stage, one, "Two").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let error = try_tool(&stage, user, "Three").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no agent `Three`");
    let changes = json!({ "enabled": false });
    stage.hub.identity().update_agent(user, agent_of(one), changes).await.unwrap();
    let error = try_tool(&stage, user, "One").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "agent_disabled"));
}
