//! Tool sync: new, changed and removed tools, and servers that do not respond.

use linchpin::{NoArgs, Tool};
use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::hub::{CallRequest, ProviderFormat, ServerFilter, ToolFilter, ToolRef};
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::tool::names::{MAX_NAME_LEN, Slug, qualified_name};
use linchpin_hub_core::tool::pin::TrustState;
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, Upstream, local_user};

fn tool(name: &str, description: &str) -> impl linchpin::Register {
    Tool::new(name).description(description).handler(|_: NoArgs| async { "done" })
}

#[tokio::test]
async fn a_tool_that_changes_cannot_be_called_until_somebody_has_looked() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    stage.upstream.handle.add(tool("send", "Sends a message")).unwrap();
    let synced = hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!((synced.added, synced.tools), (vec!["send".to_owned()], 7));
    assert_eq!(stage.call(local_user(ADA), "send", json!({})).await.unwrap().status, CallStatus::Success);
    // A change of an untrusted tool is detected, too.
    let changed = |text: &str| {
        stage.upstream.handle.remove_tool("send");
        stage.upstream.handle.add(tool("send", text)).unwrap();
    };
    changed("Sends a message\u{200b}");
    assert_eq!(hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap().changed, ["send"]);
    let view = hub.registry().tool(local_user(ADA), "mcp_up__send").await.unwrap();
    assert_eq!((view.state, view.is_callable, view.hidden_characters), (TrustState::Changed, false, 1));
    assert_eq!(view.changes[0].after.as_deref(), Some("Sends a message\\u{200b}"));
    let denied = stage.call(local_user(ADA), "send", json!({})).await.unwrap();
    assert_eq!(denied.status, CallStatus::Denied);
    assert!(denied.error.unwrap().contains("the tool definition has changed"));
    let filter = ToolFilter { state: Some(TrustState::Changed), ..ToolFilter::default() };
    assert_eq!(hub.registry().tools(local_user(ADA), &filter).await.unwrap().len(), 1);
    // Trusting a tool requires the pin that the user has reviewed.
    let error = hub.registry().trust_tool(local_user(ADA), "mcp_up__send", "0").await.unwrap_err();
    assert_eq!(error.code(), "tool_changed");
    let agent = stage.agent("Any", "auto", &[]).await;
    assert_eq!(
        hub.registry().trust_tool(agent, "mcp_up__send", &view.pin).await.unwrap_err().code(),
        "user_required"
    );
    let trusted = hub.registry().trust_tool(local_user(ADA), "mcp_up__send", &view.pin).await.unwrap();
    assert_eq!((trusted.state, trusted.is_callable), (TrustState::Trusted, true));
    assert_eq!(stage.call(local_user(ADA), "send", json!({})).await.unwrap().status, CallStatus::Success);
    // A change back to the former definition is a change, too.
    changed("Sends a message");
    hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!(
        hub.registry().tool(local_user(ADA), "mcp_up__send").await.unwrap().state,
        TrustState::Changed
    );
    assert_eq!(
        hub.registry().trust_server(local_user(ADA), "up").await.unwrap(),
        6,
        "changed tools must be reviewed one by one"
    );
    assert_eq!(
        hub.registry().tool(local_user(ADA), "mcp_up__send").await.unwrap().state,
        TrustState::Changed
    );
    let actions = stage.actions().await;
    assert_eq!(actions.iter().filter(|action| **action == "tool.quarantined").count(), 2);
    assert_eq!(actions.iter().filter(|action| **action == "tool.trusted").count(), 7);
}

#[tokio::test]
async fn a_hundred_and_fifty_changes_are_all_noticed() {
    let stage = Stage::new().await;
    let plain = "Sends a message to one person, and to nobody else, and says so.";
    for number in 0..150 {
        stage.upstream.handle.add(tool(&format!("t{number}"), plain)).unwrap();
    }
    stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    let hidden = ["\u{200b}", "\u{202e}", "\u{e0041}", " ", "\u{430}"];
    for number in 0..150 {
        let mut text = plain.to_owned();
        text.insert_str((number % 50).min(text.len()), hidden[number % hidden.len()]);
        stage.upstream.handle.remove_tool(&format!("t{number}"));
        stage.upstream.handle.add(tool(&format!("t{number}"), &text)).unwrap();
    }
    assert_eq!(
        stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap().changed.len(),
        150
    );
    for number in 0..150 {
        let call = stage.call(local_user(ADA), &format!("t{number}"), json!({})).await.unwrap();
        assert_eq!(call.status, CallStatus::Denied, "{number}");
    }
}

#[tokio::test]
async fn names_stay_when_other_servers_come_and_find_their_tools() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let names = |tools: Vec<linchpin_hub_core::hub::ToolView>| {
        tools.into_iter().filter(|tool| tool.server == "up").map(|tool| tool.name).collect::<Vec<_>>()
    };
    let before = names(hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap());
    let other = Upstream::new().await;
    let form = json!({"name": "Up", "url": other.url});
    let second = hub.registry().add_server(local_user(ADA), form).await.unwrap();
    assert_eq!(second.slug, "up-2");
    hub.registry().sync_server(local_user(ADA), "up-2", None).await.unwrap();
    let all = hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap();
    assert_eq!(all.len(), 12);
    assert_eq!(names(all), before);
    let dotted = qualified_name(&Slug::new("up-2").unwrap(), "dots.and.more", MAX_NAME_LEN);
    let view = hub.registry().tool(local_user(ADA), &dotted).await.unwrap();
    assert_eq!((&*view.server, &*view.tool), ("up-2", "dots.and.more"));
    let dotted = dotted.replace("mcp_up-2__", "");
    assert_eq!(
        stage.call(local_user(ADA), &dotted, json!({})).await.unwrap().summary.as_deref(),
        Some("dotted")
    );
    for strange in
        ["", "mcp_", "mcp_up", "mcp_up__", "mcp___echo", "echo", "mcp_up__echo_00000000", "mcp_no__echo"]
    {
        assert_eq!(
            hub.registry().tool(local_user(ADA), strange).await.unwrap_err().kind(),
            ErrorKind::NotFound,
            "{strange}"
        );
    }
}

#[tokio::test]
async fn a_dead_server_keeps_its_tools_and_hides_no_other() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let dead = Upstream::new().await;
    let form = json!({"name": "Dead", "url": dead.url, "retry_attempts": 0, "timeout_ms": 1_000});
    hub.registry().add_server(local_user(ADA), form).await.unwrap();
    hub.registry().sync_server(local_user(ADA), "dead", None).await.unwrap();
    hub.registry().disconnect_server(local_user(ADA), "dead").await.unwrap();
    drop(dead);
    let error = hub.registry().sync_server(local_user(ADA), "dead", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let tools = hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap();
    let of = |slug: &str| tools.iter().filter(|tool| tool.server == slug).collect::<Vec<_>>();
    assert_eq!((of("up").len(), of("dead").len()), (6, 6));
    assert!(of("dead").iter().all(|tool| tool.is_stale) && of("up").iter().all(|tool| !tool.is_stale));
    let view = hub.registry().server(local_user(ADA), "dead").await.unwrap();
    assert!(view.error.unwrap().starts_with("cannot connect to `dead`") && view.last_synced.is_some());
    assert_eq!(
        stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap().status,
        CallStatus::Success
    );
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_dead__echo".into()), json!({"message": "a"}));
    let call = hub.calls().call_tool(local_user(ADA), wanted, true).await.unwrap();
    assert_eq!(call.status, CallStatus::Error);
    assert!(call.error.unwrap().contains("cannot connect to"));
}

#[tokio::test]
async fn what_is_gone_is_gone_until_it_comes_back() {
    let stage = Stage::new().await;
    stage.upstream.handle.remove_tool("big");
    assert_eq!(stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap().removed, ["big"]);
    let call = stage.call(local_user(ADA), "big", json!({"bytes": 1})).await.unwrap();
    assert_eq!(call.error.as_deref(), Some("the server no longer has this tool"));
    assert_eq!(stage.hub.registry().server(local_user(ADA), "up").await.unwrap().tools, 5);
    stage.upstream.handle.add(tool("big", "Is another one")).unwrap();
    let synced = stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!((synced.changed, synced.added.len()), (vec!["big".to_owned()], 0));
    for name in ["fail", "token"] {
        stage.upstream.handle.remove_tool(name);
    }
    assert_eq!(stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap().removed.len(), 2);
    stage.upstream.handle.add(tool("fresh", "Is new")).unwrap();
    let synced = stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!((synced.added, synced.restored.len(), synced.tools), (vec!["fresh".to_owned()], 0, 5));
}

#[tokio::test]
async fn resources_and_prompts_are_passed_on() {
    use linchpin_hub_core::hub::FeatureList;
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let resources = hub.calls().list_feature(local_user(ADA), "up", FeatureList::Resources).await.unwrap();
    assert_eq!(resources[0]["uri"], "memory://a");
    assert_eq!(
        hub.calls().list_feature(local_user(ADA), "up", FeatureList::Templates).await.unwrap(),
        Vec::<Value>::new()
    );
    assert_eq!(
        hub.calls().list_feature(local_user(ADA), "up", FeatureList::Prompts).await.unwrap()[0]["name"],
        "greet"
    );
    let read = hub.calls().read_resource(local_user(ADA), "up", "memory://a").await.unwrap();
    assert_eq!(read["contents"][0]["text"], "the resource");
    let error = hub.calls().read_resource(local_user(ADA), "up", "memory://none").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "not_found"));
    let got = hub
        .calls()
        .get_prompt(local_user(ADA), "up", "greet", [("message".into(), "hello".into())].into())
        .await
        .unwrap();
    assert_eq!(got["messages"][0]["content"]["text"], "Say hello");
    let actions = stage.actions().await;
    assert!(actions.contains(&"resource.read".to_owned()) && actions.contains(&"prompt.rendered".to_owned()));
    // An agent without access to the server does not see it.
    let form = json!({"name": "None", "approval": "auto"});
    let agent = hub.identity().add_agent(local_user(ADA), form).await.unwrap();
    let agent = linchpin_hub_core::Actor::new(ADA, linchpin_hub_core::Subject::Agent(agent.summary.id));
    assert_eq!(
        hub.calls().read_resource(agent, "up", "memory://a").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn servers_are_changed_turned_off_and_removed() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let view = hub
        .registry()
        .update_server(local_user(ADA), "up", json!({"name": "Other", "timeout_ms": 5_000}))
        .await
        .unwrap();
    assert_eq!((&*view.name, view.timeout_ms, &*view.slug, view.retry_attempts), ("Other", 5_000, "up", 0));
    for (field, value) in
        [("slug", json!("x")), ("timeout_ms", json!(1)), ("command", json!("sh")), ("url", json!("x"))]
    {
        let error =
            hub.registry().update_server(local_user(ADA), "up", json!({ field: value })).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some(field)));
    }
    hub.registry().enable_server(local_user(ADA), "up", false).await.unwrap();
    let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(call.error.as_deref(), Some("the server is disabled: enable it first"));
    assert_eq!(
        hub.registry().connect_server(local_user(ADA), "up").await.unwrap_err().code(),
        "server_disabled"
    );
    hub.registry().enable_server(local_user(ADA), "up", true).await.unwrap();
    let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(call.status, CallStatus::Success);
    hub.registry().remove_server(local_user(ADA), "up").await.unwrap();
    assert_eq!(hub.registry().servers(local_user(ADA), &ServerFilter::default()).await.unwrap().len(), 0);
    assert_eq!(hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap().len(), 0);
    let kept = hub.calls().call(local_user(ADA), call.id).await.unwrap();
    assert_eq!((kept.server, kept.summary.as_deref()), (None, Some("a")), "history stays");
}

#[tokio::test]
async fn a_server_is_tried_before_it_is_kept() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let tried = hub
        .upstream()
        .test_draft(local_user(ADA), json!({"name": "New", "url": stage.upstream.url}))
        .await
        .unwrap();
    assert_eq!((tried.info.name.as_deref(), tried.tools.len()), (Some("upstream"), 6));
    let form = json!({"name": "New", "url": "http://127.0.0.1:1/mcp", "retry_attempts": 0});
    assert_eq!(
        hub.upstream().test_draft(local_user(ADA), form).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    let error = hub
        .upstream()
        .test_draft(local_user(ADA), json!({"name": "New", "command": "sh"}))
        .await
        .unwrap_err();
    assert_eq!(error.field(), Some("command"));
    assert_eq!(hub.registry().servers(local_user(ADA), &ServerFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_hub_that_starts_looks_at_its_servers() {
    let stage = Stage::new().await;
    stage.upstream.handle.add(tool("late", "Came while no hub was there")).unwrap();
    let (hub, _) = crate::fixture::open(&stage.folder, stage.clock.clone());
    let mut watching = hub.events().subscribe(ADA, None);
    let looked = async {
        while hub.registry().tool(local_user(ADA), "mcp_up__late").await.is_err() {
            watching.next().await.unwrap();
        }
    };
    let looked = tokio::time::timeout(std::time::Duration::from_secs(30), looked);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = hub.clone().run(async { drop(ended.await) });
    let wait = async {
        looked.await.unwrap();
        drop(end);
    };
    tokio::join!(running, wait);
}

#[tokio::test]
async fn exported_names_fit_the_provider_and_can_be_called() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let long = format!("report_{}", "x".repeat(90));
    stage.upstream.handle.add(tool(&long, "Has a long name")).unwrap();
    hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    for (format, longest) in
        [(ProviderFormat::OpenAi, 64), (ProviderFormat::Gemini, 64), (ProviderFormat::Anthropic, 128)]
    {
        let exported = hub.registry().export(local_user(ADA), format, ToolFilter::default()).await.unwrap();
        let tools = match format {
            ProviderFormat::Gemini => exported[0]["functionDeclarations"].as_array().unwrap().clone(),
            _ => exported,
        };
        let names: Vec<String> = tools
            .iter()
            .map(|tool| tool.pointer("/function/name").unwrap_or(&tool["name"]).as_str().unwrap().to_owned())
            .collect();
        assert!(names.iter().all(|name| name.len() <= longest), "{format:?}: {names:?}");
        assert!(names.contains(&"mcp_up__echo".to_owned()), "{format:?}: names that fit stay");
        let name = names.iter().find(|name| name.starts_with("mcp_up__report_")).unwrap();
        assert_eq!(
            *name,
            qualified_name(&Slug::new("up").unwrap(), &long, longest),
            "{format:?}: it is stable"
        );
        let wanted = CallRequest::new(ToolRef::Qualified(name.clone()), json!({}));
        let call = hub.calls().call_tool(local_user(ADA), wanted, true).await.unwrap();
        assert_eq!((call.status, &*call.tool), (CallStatus::Success, &*long), "{format:?}");
        assert_eq!(hub.registry().tool(local_user(ADA), name).await.unwrap().tool, long);
    }
}
