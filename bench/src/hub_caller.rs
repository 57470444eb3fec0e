//! Hub with one server, and callers that call its tool: a user, or an agent with a token.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use linchpin::auth::Secret;
use linchpin::egress::Egress;
use linchpin_hub_core::hub::{CallRequest, Hub, HubOptions, LOCAL, LOCAL_USER, ToolRef};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{CallStatus, Store};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Subject};
use serde_json::json;

const USER: Actor = Actor::new(LOCAL, Subject::User(LOCAL_USER));
/// Rate limit of the agent: the highest that can be set, so that it is consumed but never exceeded.
const CALLS_PER_MINUTE: u32 = 100_000;

/// Creates a hub on a store, with its keys in a directory.
pub fn new_hub(store: Arc<dyn Store>, folder: &Path) -> anyhow::Result<Arc<Hub>> {
    let (keys, _) = KeyFile::open(&folder.join("keys"), &SystemPlatform)?;
    Ok(Arc::new(Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), HubOptions::default())))
}

/// Caller of the tool.
#[derive(Clone)]
pub enum Caller {
    /// The user of the hub, already authenticated; the server has no credential.
    User,
    /// An agent that is authenticated by its token for each call.
    Agent(Arc<Secret>),
}

impl Caller {
    /// Adds the server to the hub, and so to all hubs on its store, for calls of the user.
    pub async fn user(hub: &Hub, url: &str) -> anyhow::Result<Self> {
        hub.registry().add_server(USER, json!({ "name": "Up", "url": url })).await?;
        hub.registry().sync_server(USER, "up", None).await?;
        Ok(Caller::User)
    }

    /// Adds the server with a bearer credential, and an agent with a rate limit that may call it without approval.
    pub async fn agent(hub: &Hub, url: &str) -> anyhow::Result<Self> {
        let server =
            json!({ "name": "Up", "url": url, "authentication": { "type": "bearer" }, "keep_history": true });
        hub.registry().add_server(USER, server).await?;
        hub.upstream()
            .set_credential(USER, "up", None, &Secret::new("an upstream token of a usual length"))
            .await?;
        hub.registry().sync_server(USER, "up", None).await?;
        hub.registry().trust_server(USER, "up").await?;
        let agent = json!({
            "name": "Agent", "approval": "auto", "servers": { "up": {} }, "calls_per_minute": CALLS_PER_MINUTE,
        });
        let agent = hub.identity().add_agent(USER, agent).await?;
        let (token, _) =
            hub.identity().issue_token(USER, Subject::Agent(agent.summary.id), "bench", None).await?;
        Ok(Caller::Agent(Arc::new(token)))
    }

    /// Calls the tool once.
    pub async fn call(self, hub: Arc<Hub>) -> anyhow::Result<()> {
        let actor = match &self {
            Caller::User => USER,
            Caller::Agent(token) => hub.identity().authenticate(token.expose()).await?,
        };
        let tool = ToolRef::Qualified("mcp_up__echo".into());
        let request = CallRequest::new(tool, json!({ "message": "hello" }));
        let call = hub.calls().call_tool(actor, request, true).await?;
        (call.status == CallStatus::Success)
            .then_some(())
            .with_context(|| format!("the call failed: {call:?}"))
    }
}
