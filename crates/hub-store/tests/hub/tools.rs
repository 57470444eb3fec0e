//! Tool sync: new, changed and removed tools, and servers that do not respond.

use linchpin::{NoArgs, Tool};
use linchpin_hub_core::Kind;
use linchpin_hub_core::hub::{Format, ServerFilter, ToolFilter, Wanted, Which};
use linchpin_hub_core::store::Status;
use linchpin_hub_core::tool::names::{LONGEST, Slug, local};
use linchpin_hub_core::tool::pin::State;
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, Upstream, person};

fn tool(name: &str, description: &str) -> impl linchpin::Register {
    Tool::new(name).description(description).handler(|_: NoArgs| async { "done" })
}

#[tokio::test]
async fn a_tool_that_changes_cannot_be_called_until_somebody_has_looked() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    stage.upstream.handle.add(tool("send", "Sends a message")).unwrap();
    let synced = hub.sync_server(person(ADA), "up", None).await.unwrap();
    assert_eq!((synced.added, synced.tools), (vec!["send".to_owned()], 7));
    assert_eq!(stage.call(person(ADA), "send", json!({})).await.unwrap().status, Status::Success);
    // A change of an untrusted tool is detected, too.
    let changed = |text: &str| {
        stage.upstream.handle.remove_tool("send");
        stage.upstream.handle.add(tool("send", text)).unwrap();
    };
    changed("Sends a message\u{200b}");
    assert_eq!(hub.sync_server(person(ADA), "up", None).await.unwrap().changed, ["send"]);
    let view = hub.tool(person(ADA), "mcp_up__send").await.unwrap();
    assert_eq!((view.state, view.is_callable, view.hidden_characters), (State::Changed, false, 1));
    assert_eq!(view.changes[0].after.as_deref(), Some("Sends a message\\u{200b}"));
    let denied = stage.call(person(ADA), "send", json!({})).await.unwrap();
    assert_eq!(denied.status, Status::Denied);
    assert!(denied.error.unwrap().contains("the tool definition has changed"));
    let filter = ToolFilter { state: Some(State::Changed), ..ToolFilter::default() };
    assert_eq!(hub.tools(person(ADA), &filter).await.unwrap().len(), 1);
    // Trusting a tool requires the pin that the user has reviewed.
    let error = hub.trust_tool(person(ADA), "mcp_up__send", "0").await.unwrap_err();
    assert_eq!(error.code(), "tool_changed");
    let agent = stage.agent("Any", "auto", &[]).await;
    assert_eq!(hub.trust_tool(agent, "mcp_up__send", &view.pin).await.unwrap_err().code(), "person_needed");
    let trusted = hub.trust_tool(person(ADA), "mcp_up__send", &view.pin).await.unwrap();
    assert_eq!((trusted.state, trusted.is_callable), (State::Trusted, true));
    assert_eq!(stage.call(person(ADA), "send", json!({})).await.unwrap().status, Status::Success);
    // A change back to the former definition is a change, too.
    changed("Sends a message");
    hub.sync_server(person(ADA), "up", None).await.unwrap();
    assert_eq!(hub.tool(person(ADA), "mcp_up__send").await.unwrap().state, State::Changed);
    assert_eq!(
        hub.trust_server(person(ADA), "up").await.unwrap(),
        6,
        "changed tools must be reviewed one by one"
    );
    assert_eq!(hub.tool(person(ADA), "mcp_up__send").await.unwrap().state, State::Changed);
    let actions = stage.actions().await;
    assert_eq!(actions.iter().filter(|action| **action == "tool.changed").count(), 2);
    assert_eq!(actions.iter().filter(|action| **action == "tool.trusted").count(), 7);
}

#[tokio::test]
async fn a_hundred_and_fifty_changes_are_all_noticed() {
    let stage = Stage::new().await;
    let plain = "Sends a message to one person, and to nobody else, and says so.";
    for number in 0..150 {
        stage.upstream.handle.add(tool(&format!("t{number}"), plain)).unwrap();
    }
    stage.hub.sync_server(person(ADA), "up", None).await.unwrap();
    let hidden = ["\u{200b}", "\u{202e}", "\u{e0041}", " ", "\u{430}"];
    for number in 0..150 {
        let mut text = plain.to_owned();
        text.insert_str((number % 50).min(text.len()), hidden[number % hidden.len()]);
        stage.upstream.handle.remove_tool(&format!("t{number}"));
        stage.upstream.handle.add(tool(&format!("t{number}"), &text)).unwrap();
    }
    assert_eq!(stage.hub.sync_server(person(ADA), "up", None).await.unwrap().changed.len(), 150);
    for number in 0..150 {
        let call = stage.call(person(ADA), &format!("t{number}"), json!({})).await.unwrap();
        assert_eq!(call.status, Status::Denied, "{number}");
    }
}

#[tokio::test]
async fn names_stay_when_other_servers_come_and_find_their_tools() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let names = |tools: Vec<linchpin_hub_core::hub::ToolView>| {
        tools.into_iter().filter(|tool| tool.server == "up").map(|tool| tool.name).collect::<Vec<_>>()
    };
    let before = names(hub.tools(person(ADA), &ToolFilter::default()).await.unwrap());
    let other = Upstream::new().await;
    let form = json!({"name": "Up", "url": other.url});
    let second = hub.add_server(person(ADA), form).await.unwrap();
    assert_eq!(second.slug, "up-2");
    hub.sync_server(person(ADA), "up-2", None).await.unwrap();
    let all = hub.tools(person(ADA), &ToolFilter::default()).await.unwrap();
    assert_eq!(all.len(), 12);
    assert_eq!(names(all), before);
    let dotted = local(&Slug::new("up-2").unwrap(), "dots.and.more", LONGEST);
    let view = hub.tool(person(ADA), &dotted).await.unwrap();
    assert_eq!((&*view.server, &*view.tool), ("up-2", "dots.and.more"));
    let dotted = dotted.replace("mcp_up-2__", "");
    assert_eq!(stage.call(person(ADA), &dotted, json!({})).await.unwrap().summary.as_deref(), Some("dotted"));
    for strange in
        ["", "mcp_", "mcp_up", "mcp_up__", "mcp___echo", "echo", "mcp_up__echo_00000000", "mcp_no__echo"]
    {
        assert_eq!(hub.tool(person(ADA), strange).await.unwrap_err().kind(), Kind::NotFound, "{strange}");
    }
}

#[tokio::test]
async fn a_dead_server_keeps_its_tools_and_hides_no_other() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let dead = Upstream::new().await;
    let form = json!({"name": "Dead", "url": dead.url, "retry_attempts": 0, "timeout_ms": 1_000});
    hub.add_server(person(ADA), form).await.unwrap();
    hub.sync_server(person(ADA), "dead", None).await.unwrap();
    hub.disconnect_server(person(ADA), "dead").await.unwrap();
    drop(dead);
    let error = hub.sync_server(person(ADA), "dead", None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let tools = hub.tools(person(ADA), &ToolFilter::default()).await.unwrap();
    let of = |slug: &str| tools.iter().filter(|tool| tool.server == slug).collect::<Vec<_>>();
    assert_eq!((of("up").len(), of("dead").len()), (6, 6));
    assert!(of("dead").iter().all(|tool| tool.is_stale) && of("up").iter().all(|tool| !tool.is_stale));
    let view = hub.server(person(ADA), "dead").await.unwrap();
    assert!(view.error.unwrap().starts_with("cannot connect to `dead`") && view.last_synced.is_some());
    assert_eq!(
        stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap().status,
        Status::Success
    );
    let wanted = Wanted { tool: Which::Local("mcp_dead__echo".into()), arguments: json!({"message": "a"}) };
    let call = hub.call_tool(person(ADA), wanted, true).await.unwrap();
    assert_eq!(call.status, Status::Error);
    assert!(call.error.unwrap().contains("cannot connect to"));
}

#[tokio::test]
async fn what_is_gone_is_gone_until_it_comes_back() {
    let stage = Stage::new().await;
    stage.upstream.handle.remove_tool("big");
    assert_eq!(stage.hub.sync_server(person(ADA), "up", None).await.unwrap().gone, ["big"]);
    let call = stage.call(person(ADA), "big", json!({"bytes": 1})).await.unwrap();
    assert_eq!(call.error.as_deref(), Some("the server no longer has this tool"));
    assert_eq!(stage.hub.server(person(ADA), "up").await.unwrap().tools, 5);
    stage.upstream.handle.add(tool("big", "Is another one")).unwrap();
    let synced = stage.hub.sync_server(person(ADA), "up", None).await.unwrap();
    assert_eq!((synced.changed, synced.added.len()), (vec!["big".to_owned()], 0));
    for name in ["fail", "token"] {
        stage.upstream.handle.remove_tool(name);
    }
    assert_eq!(stage.hub.sync_server(person(ADA), "up", None).await.unwrap().gone.len(), 2);
    stage.upstream.handle.add(tool("fresh", "Is new")).unwrap();
    let synced = stage.hub.sync_server(person(ADA), "up", None).await.unwrap();
    assert_eq!((synced.added, synced.back.len(), synced.tools), (vec!["fresh".to_owned()], 0, 5));
}

#[tokio::test]
async fn resources_and_prompts_are_passed_on() {
    use linchpin_hub_core::hub::Offer;
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let resources = hub.offers(person(ADA), "up", Offer::Resources).await.unwrap();
    assert_eq!(resources[0]["uri"], "memory://a");
    assert_eq!(hub.offers(person(ADA), "up", Offer::Templates).await.unwrap(), Vec::<Value>::new());
    assert_eq!(hub.offers(person(ADA), "up", Offer::Prompts).await.unwrap()[0]["name"], "greet");
    let read = hub.read_resource(person(ADA), "up", "memory://a").await.unwrap();
    assert_eq!(read["contents"][0]["text"], "the resource");
    let error = hub.read_resource(person(ADA), "up", "memory://none").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Unavailable, "server_refused"));
    let got = hub
        .get_prompt(person(ADA), "up", "greet", [("message".into(), "hello".into())].into())
        .await
        .unwrap();
    assert_eq!(got["messages"][0]["content"]["text"], "Say hello");
    let actions = stage.actions().await;
    assert!(actions.contains(&"resource.read".to_owned()) && actions.contains(&"prompt.got".to_owned()));
    // An agent without access to the server does not see it.
    let form = json!({"name": "None", "approval": "auto"});
    let agent = hub.add_agent(person(ADA), form).await.unwrap();
    let agent = linchpin_hub_core::Scope::new(ADA, linchpin_hub_core::Subject::Agent(agent.summary.id));
    assert_eq!(hub.read_resource(agent, "up", "memory://a").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn servers_are_changed_turned_off_and_removed() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let view =
        hub.update_server(person(ADA), "up", json!({"name": "Other", "timeout_ms": 5_000})).await.unwrap();
    assert_eq!((&*view.name, view.timeout_ms, &*view.slug, view.retry_attempts), ("Other", 5_000, "up", 0));
    for (field, value) in
        [("slug", json!("x")), ("timeout_ms", json!(1)), ("command", json!("sh")), ("url", json!("x"))]
    {
        let error = hub.update_server(person(ADA), "up", json!({ field: value })).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (Kind::Invalid, Some(field)));
    }
    hub.enable_server(person(ADA), "up", false).await.unwrap();
    let call = stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(call.error.as_deref(), Some("the server is disabled: enable it first"));
    assert_eq!(hub.connect_server(person(ADA), "up").await.unwrap_err().code(), "server_disabled");
    hub.enable_server(person(ADA), "up", true).await.unwrap();
    let call = stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(call.status, Status::Success);
    hub.remove_server(person(ADA), "up").await.unwrap();
    assert_eq!(hub.servers(person(ADA), &ServerFilter::default()).await.unwrap().len(), 0);
    assert_eq!(hub.tools(person(ADA), &ToolFilter::default()).await.unwrap().len(), 0);
    let kept = hub.call(person(ADA), call.id).await.unwrap();
    assert_eq!((kept.server, kept.summary.as_deref()), (None, Some("a")), "history stays");
}

#[tokio::test]
async fn a_server_is_tried_before_it_is_kept() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let tried = hub.try_draft(person(ADA), json!({"name": "New", "url": stage.upstream.url})).await.unwrap();
    assert_eq!((tried.name.as_deref(), tried.tools.len()), (Some("upstream"), 6));
    let form = json!({"name": "New", "url": "http://127.0.0.1:1/mcp", "retry_attempts": 0});
    assert_eq!(hub.try_draft(person(ADA), form).await.unwrap_err().kind(), Kind::Unavailable);
    let error = hub.try_draft(person(ADA), json!({"name": "New", "command": "sh"})).await.unwrap_err();
    assert_eq!(error.field(), Some("command"));
    assert_eq!(hub.servers(person(ADA), &ServerFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_hub_that_starts_looks_at_its_servers() {
    let stage = Stage::new().await;
    stage.upstream.handle.add(tool("late", "Came while no hub was there")).unwrap();
    let (hub, _) = crate::fixture::open(&stage.place, stage.clock.clone());
    let mut watching = hub.events().watch(ADA, None);
    let looked = async {
        while hub.tool(person(ADA), "mcp_up__late").await.is_err() {
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
    hub.sync_server(person(ADA), "up", None).await.unwrap();
    for (format, longest) in [(Format::OpenAi, 64), (Format::Gemini, 64), (Format::Anthropic, 128)] {
        let exported = hub.export(person(ADA), format, ToolFilter::default()).await.unwrap();
        let tools = match format {
            Format::Gemini => exported[0]["functionDeclarations"].as_array().unwrap().clone(),
            _ => exported,
        };
        let names: Vec<String> = tools
            .iter()
            .map(|tool| tool.pointer("/function/name").unwrap_or(&tool["name"]).as_str().unwrap().to_owned())
            .collect();
        assert!(names.iter().all(|name| name.len() <= longest), "{format:?}: {names:?}");
        assert!(names.contains(&"mcp_up__echo".to_owned()), "{format:?}: names that fit stay");
        let name = names.iter().find(|name| name.starts_with("mcp_up__report_")).unwrap();
        assert_eq!(*name, local(&Slug::new("up").unwrap(), &long, longest), "{format:?}: it is stable");
        let wanted = Wanted { tool: Which::Local(name.clone()), arguments: json!({}) };
        let call = hub.call_tool(person(ADA), wanted, true).await.unwrap();
        assert_eq!((call.status, &*call.tool), (Status::Success, &*long), "{format:?}");
        assert_eq!(hub.tool(person(ADA), name).await.unwrap().tool, long);
    }
}
