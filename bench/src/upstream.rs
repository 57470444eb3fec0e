//! Upstream server with one tool, and helpers to register it at a hub and call it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use linchpin::egress::Egress;
use linchpin::{Server, args};
use linchpin_hub_core::hub::{CallRequest, Hub, HubOptions, LOCAL, LOCAL_USER, ToolRef};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{CallStatus, Store};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Subject};
use serde_json::json;
use tokio::task::JoinSet;

const SCOPE: Actor = Actor::new(LOCAL, Subject::User(LOCAL_USER));

#[args]
struct Echo {
    message: String,
}

/// Serves the tool `echo` until the tasks are dropped, and returns the URL.
pub(crate) async fn serve(running: &mut JoinSet<()>) -> anyhow::Result<String> {
    let server = Server::new("upstream", "1").tool("echo", "", |Echo { message }| async move { message });
    let listening = server.http().bind("127.0.0.1:0").await.map_err(|error| anyhow!("{error}"))?;
    let url = listening.url();
    running.spawn(async move { drop(listening.run_until(std::future::pending()).await) });
    Ok(url)
}

/// Creates a hub on a store, with its keys in a directory.
pub(crate) fn hub(store: Arc<dyn Store>, place: &Path) -> anyhow::Result<Arc<Hub>> {
    let (keys, _) = KeyFile::open(&place.join("keys"), &SystemPlatform)?;
    Ok(Arc::new(Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), HubOptions::default())))
}

/// Registers the server at the hub, and so at all hubs on its store.
pub(crate) async fn add(hub: &Hub, url: &str) -> anyhow::Result<()> {
    hub.add_server(SCOPE, json!({ "name": "Up", "url": url })).await?;
    hub.sync_server(SCOPE, "up", None).await?;
    Ok(())
}

/// Calls the tool once.
pub(crate) async fn call(hub: Arc<Hub>) -> anyhow::Result<()> {
    let tool = ToolRef::Qualified("mcp_up__echo".into());
    let call =
        hub.call_tool(SCOPE, CallRequest { tool, arguments: json!({ "message": "hello" }) }, true).await?;
    (call.status == CallStatus::Success).then_some(()).context("the call failed")
}
