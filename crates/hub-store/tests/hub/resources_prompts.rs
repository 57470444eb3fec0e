//! Resources and prompts: rate limits and access.

use linchpin_hub_core::hub::FeatureList;
use linchpin_hub_core::{Actor, ErrorKind, Subject};
use serde_json::json;

use crate::fixture::{ADA, Stage, local_user};

#[tokio::test]
async fn resources_and_prompts_count_like_calls() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    hub.registry().update_server(local_user(ADA), "up", json!({"calls_per_minute": 4})).await.unwrap();
    let form = json!({"name": "Some", "approval": "auto", "servers": {"up": {}}});
    let agent = hub.identity().add_agent(local_user(ADA), form).await.unwrap();
    let agent = Actor::new(ADA, Subject::Agent(agent.summary.id));
    let arguments = || [("message".into(), "hello".into())].into();
    hub.calls().list_feature(agent, "up", FeatureList::Resources).await.unwrap();
    hub.calls().read_resource(agent, "up", "memory://a").await.unwrap();
    hub.calls().get_prompt(agent, "up", "greet", arguments()).await.unwrap();
    stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    let refused = [
        stage.call(agent, "echo", json!({"message": "a"})).await.unwrap_err(),
        hub.calls().list_feature(agent, "up", FeatureList::Prompts).await.unwrap_err(),
        hub.calls().read_resource(agent, "up", "memory://a").await.unwrap_err(),
        hub.calls().get_prompt(local_user(ADA), "up", "greet", arguments()).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.kind(), error.code()), (ErrorKind::LimitExceeded, "rate_limited"));
        assert_eq!(error.message(), "the server `up` is limited to 4 calls per minute: try again in 15 s");
    }
    let actions = stage.actions().await;
    let count = |wanted: &str| actions.iter().filter(|action| *action == wanted).count();
    assert_eq!((count("call.rate_limited"), count("resource.read"), count("prompt.rendered")), (4, 1, 1));
    stage.clock.advance(15);
    hub.calls().read_resource(agent, "up", "memory://a").await.unwrap();
}

#[tokio::test]
async fn an_agent_uses_the_resources_and_prompts_that_are_selected() {
    let stage = Stage::new().await;
    let (hub, user) = (&stage.hub, local_user(ADA));
    let resource = linchpin::Resource::new("memory://b", "b").handler(|| async { "b" });
    stage.upstream.handle.add(resource).unwrap();
    let form = json!({"name": "Some", "approval": "auto", "servers": {"up": {}}});
    let id = hub.identity().add_agent(user, form).await.unwrap().summary.id;
    let agent = Actor::new(ADA, Subject::Agent(id));
    let arguments = || [("message".into(), "hello".into())].into();
    let usable = async |access: serde_json::Value| {
        hub.identity().update_agent(user, id, json!({"servers": {"up": access}})).await.unwrap();
        let list = async |feature, member: &str| {
            let listed = hub.calls().list_feature(agent, "up", feature).await.unwrap();
            listed.iter().map(|item| item[member].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let mut usable = list(FeatureList::Resources, "uri").await;
        usable.extend(list(FeatureList::Prompts, "name").await);
        let mut read = Vec::new();
        for uri in ["memory://a", "memory://b"] {
            match hub.calls().read_resource(agent, "up", uri).await {
                Ok(_) => read.push(uri.to_owned()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
        match hub.calls().get_prompt(agent, "up", "greet", arguments()).await {
            Ok(_) => read.push("greet".to_owned()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
        assert_eq!(usable, read, "{access}");
        usable.join(" ")
    };
    for (access, expected) in [
        (json!({}), "memory://a memory://b greet"),
        (json!({"tools": null, "resources": null, "prompts": null}), "memory://a memory://b greet"),
        (json!({"tools": ["echo"]}), ""),
        (json!({"tools": ["echo"], "resources": ["memory://a"]}), "memory://a"),
        (
            json!({"tools": ["echo"], "resources": ["memory://*"], "prompts": ["greet"]}),
            "memory://a memory://b greet",
        ),
        (json!({"tools": ["echo"], "prompts": ["*"]}), "greet"),
        (json!({"tools": [], "resources": ["memory://{name}"]}), "memory://a memory://b"),
        (json!({"resources": ["memory://b"], "prompts": []}), "memory://b"),
        (json!({"resources": [], "prompts": ["other"]}), ""),
    ] {
        assert_eq!(usable(access).await, expected);
    }
    let seen = hub.identity().agent(user, id).await.unwrap();
    let access = serde_json::to_value(seen.servers.values().next().unwrap()).unwrap();
    assert_eq!(access, json!({"tools": null, "resources": [], "prompts": ["other"], "trusted": []}));
    for (field, value) in
        [("resources", json!(["a{?q}"])), ("resources", json!([""])), ("prompts", json!([""]))]
    {
        let form = json!({"servers": {"up": {field: value}}});
        let error = hub.identity().update_agent(user, id, form).await.unwrap_err();
        assert_eq!(error.field(), Some(&*format!("servers.up.{field}")));
    }
    let denied = stage.actions().await.into_iter().filter(|action| action.ends_with(".rejected"));
    assert!(denied.count() >= 2);
}
