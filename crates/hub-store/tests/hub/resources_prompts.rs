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
