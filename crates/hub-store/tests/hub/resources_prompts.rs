//! Resources and prompts: rate limits and access.

use linchpin_hub_core::hub::Offer;
use linchpin_hub_core::{Kind, Scope, Subject};
use serde_json::json;

use crate::fixture::{ADA, Stage, person};

#[tokio::test]
async fn resources_and_prompts_count_like_calls() {
    let stage = Stage::new().await;
    let hub = &stage.hub;
    hub.update_server(person(ADA), "up", json!({"calls_per_minute": 4})).await.unwrap();
    let form = json!({"name": "Some", "approval": "auto", "servers": {"up": {}}});
    let agent = hub.add_agent(person(ADA), form).await.unwrap();
    let agent = Scope::new(ADA, Subject::Agent(agent.summary.id));
    let arguments = || [("message".into(), "hello".into())].into();
    hub.offers(agent, "up", Offer::Resources).await.unwrap();
    hub.read_resource(agent, "up", "memory://a").await.unwrap();
    hub.get_prompt(agent, "up", "greet", arguments()).await.unwrap();
    stage.call(agent, "echo", json!({"message": "a"})).await.unwrap();
    let refused = [
        stage.call(agent, "echo", json!({"message": "a"})).await.unwrap_err(),
        hub.offers(agent, "up", Offer::Prompts).await.unwrap_err(),
        hub.read_resource(agent, "up", "memory://a").await.unwrap_err(),
        hub.get_prompt(person(ADA), "up", "greet", arguments()).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.kind(), error.code()), (Kind::Exhausted, "rate_limited"));
        assert_eq!(error.message(), "`up` is limited to 4 calls per minute: try again in 15 s");
    }
    let actions = stage.actions().await;
    let count = |wanted: &str| actions.iter().filter(|action| *action == wanted).count();
    assert_eq!((count("call.limited"), count("resource.read"), count("prompt.got")), (4, 1, 1));
    stage.clock.turn(15);
    hub.read_resource(agent, "up", "memory://a").await.unwrap();
}
