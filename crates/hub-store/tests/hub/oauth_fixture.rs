//! OAuth fixture: a server with OAuth, and users who sign in.

use std::sync::Arc;

use linchpin::testing::authority::{Authority, Behaviour, Place};
use linchpin_hub_core::hub::oauth::Progress;
use linchpin_hub_core::hub::{CallView, Hub, Wanted, Which};
use linchpin_hub_core::id::AgentId;
use linchpin_hub_core::{Scope, Subject};
use serde_json::json;

use crate::fixture::{ADA, Stage, person};

/// Returns a hub with an OAuth server.
pub(crate) async fn with(mode: &str) -> (Stage, Authority) {
    with_behaviour(mode, Authority::honest()).await
}

pub(crate) async fn with_behaviour(mode: &str, behaviour: Behaviour) -> (Stage, Authority) {
    let (stage, authority) = (Stage::new().await, Authority::start(behaviour).await.unwrap());
    let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
        "authentication": { "type": "oauth" }, "credentials": mode });
    stage.hub.add_server(person(ADA), form).await.unwrap();
    (stage, authority)
}

/// Adds an agent that may use the server.
pub(crate) async fn agent(stage: &Stage, name: &str) -> Scope {
    let form = json!({ "name": name, "approval": "auto", "servers": { "guarded": {} } });
    let agent = stage.hub.add_agent(person(ADA), form).await.unwrap();
    Scope::new(ADA, Subject::Agent(agent.summary.id))
}

/// Signs in, as a browser does.
pub(crate) async fn sign_in(stage: &Stage, authority: &Authority, agent: Option<AgentId>) -> Progress {
    let begun = stage.hub.begin_sign_in(person(ADA), "guarded", agent).await.unwrap();
    if begun.progress != Progress::Waiting {
        return begun.progress;
    }
    let (url, proof) = stage.hub.leave_to_sign_in(person(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').unwrap().1;
    stage.hub.return_from_sign_in(query, &proof).await.unwrap().progress
}

/// Starts a sign-in up to the redirect back to the hub. Returns the query of the redirect and the proof of the browser.
pub(crate) async fn led_away(hub: &Hub, authority: &Authority, agent: Option<AgentId>) -> (String, String) {
    let begun = hub.begin_sign_in(person(ADA), "guarded", agent).await.unwrap();
    assert_eq!(begun.progress, Progress::Waiting);
    let (url, proof) = hub.leave_to_sign_in(person(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    (back.url.split_once('?').unwrap().1.to_owned(), proof)
}

pub(crate) async fn greet(stage: &Stage, scope: Scope) -> CallView {
    call(&stage.hub, scope, "greet").await
}

pub(crate) async fn call(hub: &Arc<Hub>, scope: Scope, tool: &str) -> CallView {
    let tool = Which::Of { server: "guarded".into(), tool: tool.into() };
    let wanted = Wanted { tool, arguments: json!({}) };
    hub.call_tool(scope, wanted, true).await.unwrap()
}

/// Returns the distinct tokens of all requests to the server.
pub(crate) fn used(authority: &Authority) -> Vec<String> {
    let seen = authority.seen();
    let mut tokens: Vec<_> = (seen.requests.iter().filter(|request| request.place == Place::Resource))
        .map(|request| request.header("authorization").to_owned())
        .filter(|token| !token.is_empty())
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}
