//! Access to the gateway: tokens, agents, and what a caller may not see.

use linchpin::{Client, ClientError, Revision};
use serde_json::json;

use crate::fixture::{Site, within_timeout};

async fn names(client: &Client) -> Vec<String> {
    client.tools().fresh().all().await.unwrap().into_iter().map(|tool| tool.name).collect()
}

async fn error_of(client: &Client, tool: &str) -> String {
    let called = within_timeout(client.call(tool, json!({})).into_future()).await;
    called.unwrap_err().to_string()
}

#[tokio::test]
async fn a_token_is_required() {
    let site = Site::start().await;
    for token in ["", "lp_no_such_token", "Basic x"] {
        for path in ["/mcp", "/mcp/agents/anyone"] {
            let refused = site.client_at(path, token, Revision::LATEST_SESSION).connect().await;
            let error = refused.map(drop).unwrap_err().to_string();
            assert!(error.contains("`linchpin token add`"), "{error}");
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
            assert_eq!(site.post(path, token, None, &message).await.status, 401);
        }
    }
}

#[tokio::test]
async fn a_tool_that_was_not_granted_and_one_that_does_not_exist_are_the_same() {
    let site = Site::start().await;
    let limited = json!({ "approval": "auto", "servers": { "up": { "tools": ["echo"] } } });
    let agent = site.agent("Limited", limited).await;
    for revision in [Revision::ALL[0], Revision::LATEST] {
        let client = site.client(&agent.token, revision).connect().await.unwrap();
        assert_eq!(names(&client).await, ["mcp_up__echo"]);
        let hidden = error_of(&client, "mcp_up__time").await;
        let missing = error_of(&client, "mcp_up__nothing").await;
        let other_server = error_of(&client, "mcp_nowhere__time").await;
        assert!(hidden.contains("Unknown tool: mcp_up__time"), "{hidden}");
        assert_eq!(hidden.replace("mcp_up__time", "X"), missing.replace("mcp_up__nothing", "X"));
        assert_eq!(hidden.replace("mcp_up__time", "X"), other_server.replace("mcp_nowhere__time", "X"));
    }
}

#[tokio::test]
async fn a_user_acts_as_any_agent_and_an_agent_only_as_itself() {
    let site = Site::start().await;
    let limited = json!({ "approval": "auto", "servers": { "up": { "tools": ["echo"] } } });
    let agent = site.agent("Limited", limited).await;
    let other = site.agent("Other", json!({})).await;
    let revision = Revision::LATEST_SESSION;
    for name in [&*agent.name, &agent.id.to_string()] {
        for token in [&site.token, &agent.token] {
            let path = format!("/mcp/agents/{name}");
            let client = site.client_at(&path, token, revision).connect().await.unwrap();
            assert_eq!(names(&client).await, ["mcp_up__echo"]);
            assert_eq!(client.call("mcp_up__echo", json!({ "message": "a" })).await.unwrap().to_text(), "a");
        }
    }
    let user = site.client(&site.token, revision).connect().await.unwrap();
    assert_eq!(names(&user).await, ["mcp_up__echo", "mcp_up__time"]);
    let mut errors = Vec::new();
    for (name, token) in [(&*agent.name, &other.token), ("no-one", &other.token), ("no-one", &site.token)] {
        let refused = site.client_at(&format!("/mcp/agents/{name}"), token, revision).connect().await;
        errors.push(refused.map(drop).unwrap_err().to_string().replace(name, "X"));
    }
    assert!(errors[0].contains("there is no agent `X`"), "{errors:?}");
    assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{errors:?}");
}

#[tokio::test]
async fn a_revoked_token_ends_the_access() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({ "approval": "auto" })).await;
    let client = site.client(&agent.token, Revision::LATEST).connect().await.unwrap();
    assert_eq!(client.call("mcp_up__echo", json!({ "message": "a" })).await.unwrap().to_text(), "a");
    let disabled = json!({ "enabled": false });
    site.hub.identity().update_agent(crate::fixture::USER, agent.id, disabled).await.unwrap();
    let error = client.call("mcp_up__echo", json!({ "message": "a" })).await.unwrap_err();
    assert!(matches!(error, ClientError::Call(_)) && error.to_string().contains("revoked token"), "{error}");
    assert_eq!(site.executions(), 1);
}

#[tokio::test]
async fn a_session_belongs_to_one_caller() {
    let site = Site::start().await;
    let one = site.agent("One", json!({ "approval": "auto" })).await;
    let two = site.agent("Two", json!({ "approval": "auto" })).await;
    let session = site.open_session(&one.token, &json!({})).await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(site.post("/mcp", &one.token, Some(&session), &list).await.status, 200);
    assert_eq!(site.post("/mcp", &two.token, Some(&session), &list).await.status, 404);
    assert_eq!(site.post("/mcp", &site.token, Some(&session), &list).await.status, 404);
    // Nor does it belong to a user who acts as the agent.
    let path = format!("/mcp/agents/{}", one.name);
    assert_eq!(site.post(&path, &site.token, Some(&session), &list).await.status, 404);
}
