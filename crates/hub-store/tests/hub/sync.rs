//! Tool sync: when it runs, as which subject, and which tools it leaves out.

use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::Secret;
use linchpin::server::{Next, Request};
use linchpin::{NoArgs, Tool};
use linchpin_hub_core::events::EventSubscription;
use linchpin_hub_core::hub::{CallRequest, HubLimits, ToolFilter, ToolRef};
use linchpin_hub_core::store::CallStatus;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::background_loop::RunningHub;
use crate::fixture::{ADA, Stage, Upstream, agent_of, local_user};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn tool(name: &str, description: &str) -> impl linchpin::Register {
    Tool::new(name).description(description).handler(|_: NoArgs| async { "done" })
}

/// Returns the next event about tools.
async fn next_tools_event(watching: &mut EventSubscription) -> Value {
    let next = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "tools" {
                return event.body.clone();
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, next).await.unwrap()
}

#[tokio::test]
async fn what_says_too_much_of_itself_is_left_out() {
    let stage = Stage::new().await;
    let handle = &stage.upstream.handle;
    handle.add(tool("talks", &"x".repeat(200 << 10))).unwrap();
    handle.add(tool("quiet", "Says little")).unwrap();
    let mut watching = stage.hub.events().subscribe(ADA, None);
    let synced = stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!((synced.tools, synced.added), (7, vec!["quiet".into()]));
    let [talks] = &synced.skipped[..] else { panic!("{:?}", synced.skipped) };
    assert_eq!(talks.name, "talks");
    assert!(talks.reason.ends_with("bytes; the limit is 131072"), "{}", talks.reason);
    let shown = stage.hub.registry().server(local_user(ADA), "up").await.unwrap();
    assert_eq!(shown.skipped, synced.skipped, "it is stored with the server");
    assert_eq!(next_tools_event(&mut watching).await["added"], json!({ "count": 1, "first": ["quiet"] }));
    // A tool whose description becomes too long is removed.
    handle.remove_tool("quiet");
    handle.add(tool("quiet", &"x".repeat(200 << 10))).unwrap();
    let synced = stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!((synced.removed, synced.skipped.len()), (vec!["quiet".to_owned()], 2));
    let call = stage.call(local_user(ADA), "quiet", json!({})).await.unwrap();
    assert_eq!(call.status, CallStatus::Denied);
}

#[tokio::test]
async fn what_one_agent_does_not_see_another_may() {
    let stage = Stage::new().await;
    let changes = json!({ "authentication": { "type": "bearer" }, "credentials": "per-agent" });
    stage.hub.registry().update_server(local_user(ADA), "up", changes).await.unwrap();
    let (one, two) = (stage.agent("One", "auto", &[]).await, stage.agent("Two", "auto", &[]).await);
    let look = async |agent| stage.hub.registry().sync_server(local_user(ADA), "up", agent).await.unwrap();
    let give = async |agent, token: &str| {
        stage
            .hub
            .upstream()
            .set_credential(local_user(ADA), "up", Some(agent_of(agent)), &Secret::new(token))
            .await
            .unwrap();
    };
    give(one, "token-of-one").await;
    stage.upstream.handle.remove_tool("big");
    assert_eq!(look(Some(agent_of(one))).await.removed, ["big"], "no other agent could see it");
    give(two, "token-of-two").await;
    stage.upstream.handle.remove_tool("fail");
    assert_eq!(look(Some(agent_of(one))).await.removed, Vec::<String>::new(), "the other agent may see it");
    let enable = async |agent, enabled: bool| {
        let changes = json!({ "enabled": enabled });
        stage.hub.identity().update_agent(local_user(ADA), agent_of(agent), changes).await.unwrap();
    };
    enable(two, false).await;
    let synced = look(None).await;
    assert_eq!((synced.removed.len(), synced.tools), (0, 5), "an agent that was not synced may see it");
    enable(two, true).await;
    stage.upstream.tokens.lock().unwrap().clear();
    let synced = look(None).await;
    assert_eq!((synced.removed, synced.tools), (vec!["fail".to_owned()], 4), "all agents were synced");
    let tokens = stage.upstream.tokens.lock().unwrap().clone();
    for token in ["Bearer token-of-one", "Bearer token-of-two"] {
        assert!(tokens.iter().any(|sent| sent == token), "{tokens:?}");
    }
}

#[tokio::test]
async fn a_new_connection_is_a_reason_to_look_and_so_is_time() {
    let stage = Stage::new().await;
    let (hub, other) = (stage.hub.clone(), Upstream::new().await);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = hub.clone().run(async { drop(ended.await) });
    let story = async {
        let mut watching = hub.events().subscribe(ADA, None);
        let form = json!({ "name": "Other", "url": other.url, "retry_attempts": 0 });
        hub.registry().add_server(local_user(ADA), form).await.unwrap();
        assert_eq!(next_tools_event(&mut watching).await["tools"], 6);
        // Without a connection, the hub receives no notification of the change.
        hub.registry().disconnect_server(local_user(ADA), "other").await.unwrap();
        other.handle.add(tool("late", "Comes late")).unwrap();
        let tool_of = |tool: &str| ToolRef::Upstream { server: "other".into(), tool: tool.into() };
        let wanted = CallRequest::new(tool_of("echo"), json!({ "message": "a" }));
        let call = hub.calls().call_tool(local_user(ADA), wanted, true).await.unwrap();
        assert_eq!(call.status, CallStatus::Success);
        assert_eq!(next_tools_event(&mut watching).await["added"]["first"], json!(["late"]));
        hub.registry().disconnect_server(local_user(ADA), "other").await.unwrap();
        other.handle.remove_tool("late");
        stage.clock.advance(15 * 60);
        assert_eq!(next_tools_event(&mut watching).await["removed"]["first"], json!(["late"]));
        drop(end);
    };
    tokio::join!(running, story);
}

#[tokio::test]
async fn a_server_with_its_own_interval_is_synced_at_it() {
    let stage = Stage::new().await;
    let (hub, other) = (stage.hub.clone(), Upstream::new().await);
    let running = RunningHub::new(&hub);
    let mut watching = hub.events().subscribe(ADA, None);
    let form = json!({ "name": "Other", "url": other.url, "retry_attempts": 0, "sync_interval_ms": 60_000 });
    hub.registry().add_server(local_user(ADA), form).await.unwrap();
    assert_eq!(next_tools_event(&mut watching).await["tools"], 6);
    for slug in ["up", "other"] {
        hub.registry().disconnect_server(local_user(ADA), slug).await.unwrap(); // no notifications of changes
    }
    stage.upstream.handle.add(tool("late", "Comes late")).unwrap();
    other.handle.add(tool("early", "Comes early")).unwrap();
    stage.clock.advance(60);
    assert_eq!(next_tools_event(&mut watching).await["added"]["first"], json!(["early"]));
    hub.set_limits(HubLimits { sync_interval: Duration::from_mins(1), ..HubLimits::default() });
    assert_eq!(next_tools_event(&mut watching).await["added"]["first"], json!(["late"]));
    running.end().await;
}

#[tokio::test]
async fn what_went_wrong_before_it_was_changed_says_nothing_of_a_server() {
    let stage = Stage::new().await;
    let (hub, has_begun, go_on) = (&stage.hub, Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, waits) = (has_begun.clone(), go_on.clone());
    let slow = linchpin::Server::new("slow", "1").layer(move |request: Request, next: Next| {
        let (begins, waits, is_list) = (begins.clone(), waits.clone(), request.method() == "tools/list");
        async move {
            if is_list {
                begins.notify_one();
                waits.notified().await;
                return Err(linchpin::Error::rpc(503, "not now"));
            }
            next.run(request).await
        }
    });
    let listening = slow.tool("a", "A", |_: NoArgs| async { "a" }).http().bind("127.0.0.1:0").await.unwrap();
    let asks = json!({ "name": "Asks", "url": listening.url(), "authentication": { "type": "bearer" } });
    let mut running = JoinSet::new();
    running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
    stage.add(asks).await;
    let error = async || hub.registry().server(local_user(ADA), "asks").await.unwrap().error;
    let enter = async |token: &str| {
        hub.upstream().set_credential(local_user(ADA), "asks", None, &Secret::new(token)).await.unwrap();
    };
    assert!(error().await.unwrap().starts_with("no credential is stored for the server `asks`"));
    enter("first").await;
    assert_eq!(error().await, None, "there are credentials");
    // A sync that started before the change of the credential ends after it.
    let look =
        || tokio::time::timeout(TEST_TIMEOUT, hub.registry().sync_server(local_user(ADA), "asks", None));
    let meanwhile = async {
        has_begun.notified().await;
        enter("second").await;
        go_on.notify_one();
    };
    let (looked, changed) = tokio::join!(look(), tokio::time::timeout(TEST_TIMEOUT, meanwhile));
    assert!(looked.unwrap().is_err() && changed.is_ok());
    assert_eq!(error().await, None, "the error was for the first credential");
    go_on.notify_one();
    look().await.unwrap().unwrap_err();
    assert!(error().await.unwrap().contains("the tools of the server cannot be listed"));
}

#[tokio::test]
async fn names_that_had_to_be_adapted_follow_their_tools() {
    let stage = Stage::new().await;
    stage.upstream.handle.add(tool("a.b", "Has a dot")).unwrap();
    stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    let tools = stage.hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap();
    let name = tools.iter().find(|tool| tool.tool == "a.b").unwrap().name.clone();
    for _ in 0..2 {
        assert_eq!(stage.hub.registry().tool(local_user(ADA), &name).await.unwrap().tool, "a.b");
    }
    stage.hub.registry().remove_server(local_user(ADA), "up").await.unwrap();
    stage.add(json!({})).await;
    let found = stage.hub.registry().tool(local_user(ADA), &name).await.unwrap();
    assert_eq!((&*found.server, &*found.tool), ("up", "a.b"), "the tool of the new server");
}
