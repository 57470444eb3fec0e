//! OAuth fixture: a server with OAuth, and users who sign in.

use std::sync::Arc;

use linchpin::testing::authority::{Authority, AuthorityHost, Behaviour};
use linchpin_hub_core::hub::oauth::SignInStatus;
use linchpin_hub_core::hub::{CallRequest, CallView, Hub, ToolRef};
use linchpin_hub_core::id::AgentId;
use linchpin_hub_core::{Actor, Subject};
use serde_json::json;

use crate::fixture::{ADA, Stage, local_user};

/// Returns a hub with an OAuth server.
pub(crate) async fn oauth_stage(mode: &str) -> (Stage, Authority) {
    oauth_stage_with(mode, Authority::conforming()).await
}

pub(crate) async fn oauth_stage_with(mode: &str, behaviour: Behaviour) -> (Stage, Authority) {
    let (stage, authority) = (Stage::new().await, Authority::start(behaviour).await.unwrap());
    let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
        "authentication": { "type": "oauth" }, "credentials": mode });
    stage.hub.registry().add_server(local_user(ADA), form).await.unwrap();
    (stage, authority)
}

/// Adds an agent that may use the server.
pub(crate) async fn agent(stage: &Stage, name: &str) -> Actor {
    let form = json!({ "name": name, "approval": "auto", "servers": { "guarded": {} } });
    let agent = stage.hub.identity().add_agent(local_user(ADA), form).await.unwrap();
    Actor::new(ADA, Subject::Agent(agent.summary.id))
}

/// Signs in, as a browser does.
pub(crate) async fn sign_in(stage: &Stage, authority: &Authority, agent: Option<AgentId>) -> SignInStatus {
    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", agent).await.unwrap();
    if begun.progress != SignInStatus::Waiting {
        return begun.progress;
    }
    let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').unwrap().1;
    stage.hub.complete_sign_in(query, &proof).await.unwrap().progress
}

/// Starts a sign-in up to the redirect back to the hub. Returns the query of the redirect and the proof of the browser.
pub(crate) async fn start_sign_in(
    hub: &Hub,
    authority: &Authority,
    agent: Option<AgentId>,
) -> (String, String) {
    let begun = hub.upstream().start_sign_in(local_user(ADA), "guarded", agent).await.unwrap();
    assert_eq!(begun.progress, SignInStatus::Waiting);
    let (url, proof) = hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    (back.url.split_once('?').unwrap().1.to_owned(), proof)
}

pub(crate) async fn greet(stage: &Stage, actor: Actor) -> CallView {
    call(&stage.hub, actor, "greet").await
}

pub(crate) async fn call(hub: &Arc<Hub>, actor: Actor, tool: &str) -> CallView {
    let tool = ToolRef::Upstream { server: "guarded".into(), tool: tool.into() };
    let wanted = CallRequest::new(tool, json!({}));
    hub.calls().call_tool(actor, wanted, true).await.unwrap()
}

/// Returns the distinct tokens of all requests to the server.
pub(crate) fn used_tokens(authority: &Authority) -> Vec<String> {
    let seen = authority.observations();
    let mut tokens: Vec<_> = (seen.requests.iter().filter(|request| request.host == AuthorityHost::Resource))
        .map(|request| request.header("authorization").to_owned())
        .filter(|token| !token.is_empty())
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}
