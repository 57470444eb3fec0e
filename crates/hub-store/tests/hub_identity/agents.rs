//! Agents.

use linchpin_hub_core::agent::ApprovalMode;
use linchpin_hub_core::hub::agents::AgentFilter;
use linchpin_hub_core::tool::ToolRecord;

use super::*;

fn page(limit: usize, after: Option<String>) -> PageRequest {
    PageRequest { after, limit }
}

#[tokio::test]
async fn the_least_and_the_most_that_can_be_said() {
    let stage = Stage::open().await;
    let (files, mail) = (stage.server(LOCAL, 1, "files").await, stage.server(LOCAL, 2, "mail").await);
    for (number, is_removed) in [(1, false), (2, false), (3, true)] {
        let mut tool = ToolRecord::new(mail, format!("tool-{number}"), json!({}), stage.clock.now());
        tool.is_removed = is_removed;
        let document =
            Document::new(DocumentKey::new(DocumentKind::Tool, number), &tool).unwrap().with_parent(mail);
        stage
            .store
            .commit(LOCAL, Batch::new().change(StoreChange::Put { document, version: 0 }))
            .await
            .unwrap();
    }
    let least =
        stage.hub.identity().add_agent(ADA, json!({"name": " helper ", "model": null})).await.unwrap();
    let expected = json!({
        "id": least.summary.id, "name": "helper", "model": null, "approval": "always-ask", "enabled": true,
        "calls_per_minute": null, "max_concurrent_calls": null, "client_approvals": true, "server_count": 0,
        "tool_count": 0, "created": stage.clock.now(), "updated": stage.clock.now(),
        "instructions": "", "servers": {},
    });
    assert_eq!(json!(least), expected);
    let former = json!({"name": "other", "calls_at_once": 1});
    let error = stage.hub.identity().add_agent(ADA, former).await.unwrap_err();
    assert!(error.to_string().ends_with("did you mean `max_concurrent_calls`?"), "{error}");
    let most = json!({
        "name": "日".repeat(100), "instructions": "i".repeat(100_000), "model": "m".repeat(200), "approval": "trusted-only",
        "enabled": false, "calls_per_minute": 100_000, "max_concurrent_calls": 1_000,
        "servers": {"files": {"tools": ["b", "a", "b"], "trusted": ["a"]}, mail.to_string(): {}},
    });
    let view = stage.hub.identity().add_agent(ADA, most).await.unwrap();
    assert_eq!(
        (view.summary.server_count, view.summary.tool_count),
        (2, 4),
        "two selected tools, and all two of the other server"
    );
    assert_eq!((view.summary.approval, view.summary.enabled), (ApprovalMode::TrustedOnly, false));
    assert_eq!(
        (view.servers[&files].tools.as_deref(), &*view.servers[&files].trusted),
        (Some(&["a".into(), "b".into()][..]), &["a".into()][..])
    );
    assert_eq!(stage.hub.identity().agent(ADA, view.summary.id).await.unwrap(), view);
}

#[tokio::test]
async fn every_field_out_of_range_names_it_and_changes_nothing() {
    let stage = Stage::open().await;
    let files = stage.server(LOCAL, 1, "files").await;
    stage.server(OTHER, 3, "theirs").await;
    let agent = stage.agent(ADA, "helper").await;
    let before = stage.documents(LOCAL).await;
    let long = "t".repeat(1_001);
    let many: Vec<_> = (0..10_001).map(|number| number.to_string()).collect();
    let half = &many[..5_001];
    let servers: serde_json::Map<_, _> = (0..501).map(|number| (format!("s-{number}"), json!({}))).collect();
    let cases = [
        ("name", json!(""), "name"),
        ("name", json!(" "), "name"),
        ("name", json!("a\nb"), "name"),
        ("name", json!("helper\u{200b}"), "name"),
        ("name", json!("\u{2066}helper"), "name"),
        ("name", json!("n".repeat(101)), "name"),
        ("name", json!(1), "name"),
        ("name", Value::Null, "name"),
        ("instructions", json!("i".repeat(100_001)), "instructions"),
        ("instructions", json!([]), "instructions"),
        ("model", json!("m".repeat(201)), "model"),
        ("model", json!({}), "model"),
        ("approval", json!("never"), "approval"),
        ("approval", json!(true), "approval"),
        ("enabled", json!("yes"), "enabled"),
        ("servers", json!([]), "servers"),
        ("servers", json!(servers), "servers"),
        ("servers", json!({"nowhere": {}}), "servers.nowhere"),
        ("servers", json!({"theirs": {}}), "servers.theirs"),
        (
            "servers",
            json!({ServerId::from_u128(3).to_string(): {}}),
            "servers.00000000-0000-0000-0000-000000000003",
        ),
        (
            "servers",
            json!({"files": {}, files.to_string(): {}}),
            "servers.00000000-0000-0000-0000-000000000001",
        ),
        ("servers", json!({"files": []}), "servers.files"),
        ("servers", json!({"files": null}), "servers.files"),
        ("servers", json!({"files": {"tools": "a"}}), "servers.files.tools"),
        ("servers", json!({"files": {"tools": [""]}}), "servers.files.tools"),
        ("servers", json!({"files": {"tools": [1]}}), "servers.files.tools"),
        ("servers", json!({"files": {"trusted": [long]}}), "servers.files.trusted"),
        ("servers", json!({"files": {"trusted": many}}), "servers.files.trusted"),
        ("servers", json!({"files": {"tools": half, "trusted": half}}), "servers"),
        ("servers", json!({"files": {"denied": []}}), "servers.files.denied"),
        ("id", json!(AgentId::from_u128(1)), "id"),
        ("colour", json!("red"), "colour"),
    ];
    for (name, value, expected) in cases {
        let mut whole = json!({"name": "other"});
        whole[name] = value.clone();
        assert_eq!(
            field(stage.hub.identity().add_agent(ADA, whole).await).as_deref(),
            Some(expected),
            "{name}"
        );
        let changed = stage.hub.identity().update_agent(ADA, agent, json!({name: value})).await;
        assert_eq!(field(changed).as_deref(), Some(expected), "{name}");
    }
    assert_eq!(field(stage.hub.identity().add_agent(ADA, json!({})).await).as_deref(), Some("name"));
    assert_eq!(field(stage.hub.identity().add_agent(ADA, json!([])).await).as_deref(), Some("body"));
    assert_eq!(code(stage.hub.identity().add_agent(ADA, json!({"name": "helper"})).await), "name_taken");
    assert_eq!(stage.documents(LOCAL).await, before);
    assert_eq!(stage.actions(LOCAL).await, ["user.added", "agent.added"]);
    assert_eq!(code(stage.hub.identity().add_agent(BOB, json!({"name": "helper"})).await), "done");
}

#[tokio::test]
async fn what_is_given_changes_and_nothing_else() {
    let stage = Stage::open().await;
    let files = stage.server(LOCAL, 1, "files").await;
    let all = json!({
        "name": "helper", "instructions": "help", "model": "demo", "approval": "auto",
        "servers": {"files": {"tools": ["read"]}},
    });
    let before = stage.hub.identity().add_agent(ADA, all).await.unwrap();
    let id = before.summary.id;
    stage.advance(10);
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    let after = stage.hub.identity().update_agent(ADA, id, json!({"enabled": false})).await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((&*event.kind, &event.body), ("agent", &json!({"agent": id})));
    let mut expected = before.clone();
    (expected.summary.enabled, expected.summary.updated) = (false, stage.clock.now());
    assert_eq!(after, expected);
    // A selected server that has been removed does not block the update.
    let gone = Batch::new().change(StoreChange::Delete(DocumentKey::new(DocumentKind::Server, files)));
    stage.store.commit(LOCAL, gone).await.unwrap();
    let after = stage.hub.identity().update_agent(ADA, id, json!({"name": "other"})).await.unwrap();
    assert_eq!((&*after.summary.name, after.summary.server_count), ("other", 1));
    // `null` resets a field to its default.
    let nothing =
        json!({"instructions": null, "model": null, "approval": null, "enabled": null, "servers": null});
    let after = stage.hub.identity().update_agent(ADA, id, nothing).await.unwrap();
    let bare = stage.hub.identity().add_agent(ADA, json!({"name": "bare"})).await.unwrap();
    expected = bare;
    (expected.summary.id, expected.summary.name, expected.summary.created) =
        (id, "other".into(), before.summary.created);
    assert_eq!(after, expected);
    assert_eq!(
        code(stage.hub.identity().update_agent(ADA, AgentId::from_u128(9), json!({})).await),
        "not_found"
    );
    let name = json!({"name": "bare"});
    assert_eq!(code(stage.hub.identity().update_agent(ADA, id, name).await), "name_taken");
}

#[tokio::test]
async fn lists_have_filters_and_pages() {
    let stage = Stage::open().await;
    let files = stage.server(LOCAL, 1, "files").await;
    for number in 0..7 {
        stage.advance(1);
        let servers = if number < 2 { json!({"files": {}}) } else { json!({}) };
        let agent =
            json!({"name": format!("Agent {number}"), "enabled": number % 2 == 0, "servers": servers});
        stage.hub.identity().add_agent(ADA, agent).await.unwrap();
    }
    stage.agent(BOB, "Agent of Bob").await;
    let find = async |filter: AgentFilter| {
        let (mut names, mut after) = (String::new(), None);
        loop {
            let found = stage.hub.identity().agents(ADA, &filter, &page(2, after)).await.unwrap();
            assert!(found.items.len() <= 2);
            names.extend(found.items.iter().map(|agent| agent.name.replace("Agent ", "")));
            after = found.next;
            if after.is_none() {
                return names;
            }
        }
    };
    let any = AgentFilter::default;
    assert_eq!(find(any()).await, "0123456");
    assert_eq!(find(AgentFilter { enabled: Some(true), ..any() }).await, "0246");
    assert_eq!(find(AgentFilter { enabled: Some(false), ..any() }).await, "135");
    assert_eq!(find(AgentFilter { name: Some("aGENT 3".into()), ..any() }).await, "3");
    assert_eq!(find(AgentFilter { server: Some(files), ..any() }).await, "01");
    assert_eq!(find(AgentFilter { name: Some("bob".into()), ..any() }).await, "");
    let page = stage.hub.identity().agents(ADA, &any(), &page(1, None)).await.unwrap();
    assert_eq!(
        (json!(page)["items"][0]["name"].as_str(), page.next),
        (Some("Agent 0"), Some(page.items[0].id.to_string()))
    );
}

#[tokio::test]
async fn an_agent_goes_with_its_tokens_alone() {
    let stage = Stage::open().await;
    let (one, other) = (stage.agent(ADA, "one").await, stage.agent(ADA, "other").await);
    let issue = async |agent| {
        stage.hub.identity().issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap().0
    };
    let (first, second, of_other) = (issue(one).await, issue(one).await, issue(other).await);
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    stage.hub.identity().remove_agent(ADA, one).await.unwrap();
    for (kind, body) in
        [("token", json!({"owner": format!("agent:{one}")})), ("agent", json!({"agent": one}))]
    {
        let event = next(&mut events).await;
        assert_eq!((&*event.kind, &event.body), (kind, &body));
    }
    for token in [first, second] {
        assert_eq!(code(stage.hub.identity().authenticate(token.expose()).await), "unauthorized");
    }
    assert_eq!(code(stage.hub.identity().authenticate(of_other.expose()).await), "done");
    assert_eq!(code(stage.hub.identity().agent(ADA, one).await), "not_found");
    assert_eq!(code(stage.hub.identity().remove_agent(ADA, one).await), "not_found");
    assert_eq!(stage.documents(LOCAL).await.len(), 3, "the user, the other agent and its token");
}
