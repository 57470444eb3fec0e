//! Refused calls: their cost, their stored records, and the information that an agent gets.

use linchpin_hub_core::hub::{CallRequest, FeatureList, ToolFilter, ToolRef};
use linchpin_hub_core::id::ServerId;
use linchpin_hub_core::store::{CallFilter, CallStatus, PageRequest};
use linchpin_hub_core::{Actor, Error, ErrorKind, Subject};
use serde_json::{Value, json};

use crate::background_task::within_timeout;
use crate::fixture::{ADA, Stage, local_user};

async fn agent(stage: &Stage, more: Value) -> Actor {
    let mut form = json!({"name": "Refused", "approval": "auto", "servers": {"up": {}}});
    form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let agent = stage.hub.identity().add_agent(local_user(ADA), form).await.unwrap();
    Actor::new(ADA, Subject::Agent(agent.summary.id))
}

async fn calls(stage: &Stage) -> usize {
    let paging = PageRequest { after: None, limit: 500 };
    stage.hub.calls().list(local_user(ADA), CallFilter::default(), &paging).await.unwrap().items.len()
}

/// The counts of all audit entries with this action.
async fn counts(stage: &Stage, action: &str) -> Vec<u64> {
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let own = rows.iter().filter(|row| row.action == action);
    own.map(|row| row.fields["count"].as_u64().unwrap_or(1)).collect()
}

/// Waits until the audit has an entry that fits.
async fn wait_for_entry(stage: &Stage, fits: impl Fn(&str, &Value) -> bool) {
    within_timeout(async {
        loop {
            let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
            if rows.iter().any(|row| fits(&row.action, &row.fields)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_call_takes_a_turn_and_its_arguments_are_not_stored() {
    let stage = Stage::new().await;
    let agent = agent(&stage, json!({"calls_per_minute": 1})).await;
    let invalid = json!({"message": 1, "more": "x".repeat(10_000)});
    let call = stage.call(agent, "echo", invalid.clone()).await.unwrap();
    assert_eq!((call.status, &call.arguments), (CallStatus::Error, &None));
    let stored = stage.store.call(ADA, call.id).await.unwrap().unwrap();
    assert_eq!(stored.arguments, None);
    for _ in 0..10 {
        let error = stage.call(agent, "echo", invalid.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::LimitExceeded, "rate_limited"));
    }
    assert_eq!(calls(&stage).await, 1);

    stage.hub.registry().enable_server(local_user(ADA), "up", false).await.unwrap();
    stage.clock.advance(60);
    let call = stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!((call.status, call.arguments), (CallStatus::Denied, None));
    let error = stage.call(agent, "echo", json!({"message": "a"})).await.unwrap_err();
    assert_eq!(error.code(), "rate_limited");
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn repeated_rejections_are_one_record_with_a_count() {
    let stage = Stage::new().await;
    let agent = agent(&stage, json!({})).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        let call = stage.call(agent, "echo", json!({"message": 7})).await.unwrap();
        assert_eq!(call.status, CallStatus::Error);
        assert!(call.error.unwrap().starts_with("the arguments do not match the input schema of the tool: "));
        ids.push(call.id);
    }
    ids.dedup();
    assert_eq!((ids.len(), calls(&stage).await), (1, 1));
    assert_eq!(stage.hub.calls().call(agent, ids[0]).await.unwrap().status, CallStatus::Error);
    // Another error, another tool or another subject is recorded separately.
    let other = stage.call(agent, "echo", json!({"message": 8})).await.unwrap();
    assert_eq!(stage.hub.calls().call(agent, other.id).await.unwrap().error, other.error);
    stage.call(agent, "big", json!({})).await.unwrap();
    stage.call(local_user(ADA), "echo", json!({})).await.unwrap();
    assert_eq!(calls(&stage).await, 4);
    assert_eq!(counts(&stage, "call.rejected").await, [1, 1, 1, 1]);
    stage.hub.shutdown().await;
    assert_eq!(counts(&stage, "call.rejected").await, [1, 1, 1, 1, 49]);
}

#[tokio::test]
async fn calls_over_the_limit_are_counted_in_one_entry() {
    let stage = Stage::new().await;
    let agent = agent(&stage, json!({"calls_per_minute": 1})).await;
    stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    for _ in 0..50 {
        stage.call(agent, "echo", json!({"message": "a"})).await.unwrap_err();
        stage.hub.calls().read_resource(agent, "up", "memory://a").await.unwrap_err();
    }
    stage.hub.shutdown().await;
    let counts = counts(&stage, "call.rate_limited").await;
    assert!(counts.len() <= 4, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 100);
}

#[tokio::test]
async fn calls_without_room_are_counted_in_one_entry() {
    let stage = Stage::new().await;
    let agent = agent(&stage, json!({"max_concurrent_calls": 1})).await;
    let wanted = || CallRequest::new(ToolRef::Qualified("mcp_up__wait".into()), json!({}));
    stage.hub.calls().call_tool(agent, wanted(), false).await.unwrap();
    for _ in 0..20 {
        let error = stage.hub.calls().call_tool(agent, wanted(), true).await.unwrap_err();
        assert_eq!(error.code(), "too_many_calls");
    }
    stage.upstream.release.notify_one();
    stage.hub.shutdown().await;
    let counts = counts(&stage, "call.rate_limited").await;
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (2, 20));
}

#[tokio::test]
async fn a_call_that_a_user_denied_keeps_its_arguments() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    for message in ["a", "b"] {
        let (call, approval) = stage.ask(agent, "echo", json!({ "message": message })).await;
        stage.hub.calls().deny(local_user(ADA), approval, None).await.unwrap();
        let call = stage.hub.calls().call(local_user(ADA), call.id).await.unwrap();
        assert_eq!((call.status, call.arguments), (CallStatus::Denied, Some(json!({ "message": message }))));
    }
}

/// Everything that a caller sees of an error, without the name that it sent.
fn visible_error(error: &Error, name: &str) -> (ErrorKind, &'static str, Option<String>, String) {
    let text = error.message().replace(name, "NAME");
    (error.kind(), error.code(), error.field().map(str::to_owned), text)
}

#[tokio::test]
async fn a_tool_that_was_not_granted_looks_like_one_that_does_not_exist() {
    let stage = Stage::new().await;
    stage.add(json!({"name": "Other"})).await;
    let other = stage.hub.registry().server(local_user(ADA), "other").await.unwrap().id.to_string();
    let nothing = ServerId::from_u128(77).to_string();
    let agent = agent(&stage, json!({"servers": {"up": {"tools": ["echo"]}}})).await;
    let call = async |tool: ToolRef| {
        let wanted = CallRequest::new(tool, json!({}));
        stage.hub.calls().call_tool(agent, wanted, true).await.unwrap_err()
    };
    for (hidden, missing) in [("mcp_up__big", "mcp_up__none"), ("mcp_other__echo", "mcp_none__echo")] {
        let of = async |name: &str| {
            let called = call(ToolRef::Qualified(name.into())).await;
            let got = stage.hub.registry().tool(agent, name).await.unwrap_err();
            (visible_error(&called, name), visible_error(&got, name))
        };
        let (hidden, missing) = (of(hidden).await, of(missing).await);
        assert_eq!(hidden, missing);
        assert_eq!(hidden.0.0, ErrorKind::NotFound);
    }
    let in_up = async |tool: &str| {
        let error = call(ToolRef::Upstream { server: "up".into(), tool: tool.into() }).await;
        visible_error(&error, tool)
    };
    assert_eq!(in_up("big").await, in_up("none").await);
    for (hidden, missing) in [("other", "none"), (&*other, &*nothing)] {
        let of = async |name: &str| {
            let filter = ToolFilter { server: Some(name.into()), ..ToolFilter::default() };
            let errors = [
                call(ToolRef::Upstream { server: name.into(), tool: "echo".into() }).await,
                stage.hub.registry().tools(agent, &filter).await.unwrap_err(),
                stage.hub.calls().list_feature(agent, name, FeatureList::Prompts).await.unwrap_err(),
                stage.hub.calls().read_resource(agent, name, "memory://a").await.unwrap_err(),
                stage.hub.calls().get_prompt(agent, name, "greet", [].into()).await.unwrap_err(),
            ];
            errors.map(|error| visible_error(&error, name))
        };
        let (hidden, missing) = (of(hidden).await, of(missing).await);
        assert_eq!(hidden, missing);
        assert_eq!(hidden[0].0, ErrorKind::NotFound);
    }
    // No attempt becomes a call of the agent. The audit contains each of them.
    assert_eq!(calls(&stage).await, 0);
    for (wanted, server, tool) in [
        ("call.rejected", "up", json!("big")),
        ("tool.rejected", "up", json!("big")),
        ("server.rejected", "other", json!(null)),
    ] {
        let server = json!(stage.hub.registry().server(local_user(ADA), server).await.unwrap().id);
        wait_for_entry(&stage, |action, fields| {
            action == wanted
                && fields["reason"] == "not_selected"
                && (&fields["server"], fields.get("tool").unwrap_or(&Value::Null)) == (&server, &tool)
        })
        .await;
    }
    // A user sees the tools.
    let filter = ToolFilter { server: Some("other".into()), ..ToolFilter::default() };
    assert!(!stage.hub.registry().tools(local_user(ADA), &filter).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tool_that_does_not_exist_takes_a_turn_like_one_that_was_not_granted() {
    let stage = Stage::new().await;
    for tool in ["big", "none"] {
        let limited = json!({"name": tool, "calls_per_minute": 1, "servers": {"up": {"tools": ["echo"]}}});
        let agent = agent(&stage, limited).await;
        assert_eq!(stage.call(agent, tool, json!({})).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(stage.call(agent, tool, json!({})).await.unwrap_err().code(), "rate_limited", "{tool}");
    }
}

#[tokio::test]
async fn resources_and_prompts_come_with_the_whole_server_only() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    let some = agent(&stage, json!({"name": "Some", "servers": {"up": {"tools": ["echo"]}}})).await;
    let all = agent(&stage, json!({"name": "All"})).await;
    let arguments = || [("message".into(), "hello".into())].into();
    for what in [FeatureList::Resources, FeatureList::Templates, FeatureList::Prompts] {
        assert_eq!(hub.calls().list_feature(some, "up", what).await.unwrap(), Vec::<Value>::new());
    }
    assert_eq!(hub.calls().list_feature(all, "up", FeatureList::Resources).await.unwrap().len(), 1);
    hub.calls().read_resource(all, "up", "memory://a").await.unwrap();
    hub.calls().get_prompt(all, "up", "greet", arguments()).await.unwrap();
    let refused = [
        hub.calls().read_resource(some, "up", "memory://a").await.unwrap_err(),
        hub.calls().read_resource(some, "up", "memory://none").await.unwrap_err(),
        hub.calls().get_prompt(some, "up", "greet", arguments()).await.unwrap_err(),
        hub.calls().get_prompt(some, "up", "none", arguments()).await.unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::NotFound), "{refused:?}");
    assert_eq!(visible_error(&refused[0], "memory://a"), visible_error(&refused[1], "memory://none"));
    assert_eq!(visible_error(&refused[2], "greet"), visible_error(&refused[3], "none"));
    for action in ["resource.rejected", "prompt.rejected"] {
        wait_for_entry(&stage, |found, fields| found == action && fields["reason"] == "not_selected").await;
    }
}
