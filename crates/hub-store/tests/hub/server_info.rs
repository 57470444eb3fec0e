//! What a server reports of itself: stored at each sync, bounded and without invisible characters.

use linchpin::{NoArgs, Revision, Server, Tool};
use linchpin_hub_core::hub::ServerView;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, Stage, local_user};

#[tokio::test]
async fn a_sync_stores_what_the_server_reports_and_offers() {
    let stage = Stage::new().await;
    let shown: ServerView = stage.hub.registry().server(local_user(ADA), "up").await.unwrap();
    let info = shown.info.unwrap();
    assert_eq!((info.name.as_deref(), info.version.as_deref()), (Some("upstream"), Some("1")));
    assert_eq!(info.revision, Revision::LATEST.as_str());
    assert!(info.capabilities.contains(&"resources.subscribe".to_owned()), "{:?}", info.capabilities);
    assert_eq!((shown.tools, shown.resources, shown.prompts), (6, Some(1), Some(1)));
    assert_eq!(shown.resource_templates, Some(0));
    let connected = stage.hub.registry().connect_server(local_user(ADA), "up").await.unwrap();
    assert_eq!(connected.offers.features.resources, ["memory://a"]);
    assert_eq!(connected.offers.features.prompts, ["greet"]);
    assert_eq!(connected.offers.tools.len(), connected.server.tools);
    let report = stage.hub.upstream().test_server(local_user(ADA), "up").await.unwrap();
    assert_eq!((report.features.prompts, report.tools.len()), (vec!["greet".to_owned()], 6));
    assert_eq!(report.info, connected.server.info.unwrap());
}

#[tokio::test]
async fn instructions_of_a_server_are_bounded_and_visible() {
    let stage = Stage::new().await;
    let text = format!("Use\u{202e}it\n{}", "x".repeat(9_000));
    let server = Server::new("odd\u{200b}name", "1").instructions(text);
    let tool = Tool::new("a").description("A").handler(|_: NoArgs| async { "a" });
    let listening = server.add(tool).http().bind("127.0.0.1:0").await.unwrap();
    let form = json!({ "name": "Odd", "url": listening.url(), "retry_attempts": 0 });
    let mut running = JoinSet::new();
    running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
    stage.add(form).await;
    let info = stage.hub.registry().server(local_user(ADA), "odd").await.unwrap().info.unwrap();
    assert_eq!(info.name.as_deref(), Some("odd\\u{200b}name"));
    let instructions = info.instructions.unwrap();
    assert!(instructions.starts_with("Use\\u{202e}it\n"), "{instructions:.40}");
    assert!(instructions.chars().count() < 8_100 && instructions.ends_with('…'));
}
