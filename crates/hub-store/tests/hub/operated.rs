//! The servers of the operator's file.

use linchpin_hub_core::hub::ServerFilter;
use linchpin_hub_core::server::Operated;
use serde_json::{Value, json};

use crate::stage::{ADA, Stage, open, person};

fn server(slug: &str, form: Value) -> Operated {
    Operated::read(slug, form).unwrap()
}

async fn transports(stage: &Stage) -> Vec<(String, &'static str)> {
    let servers = stage.hub.servers(person(ADA), &ServerFilter::default()).await.unwrap();
    // Those that were added in the same moment come in any order.
    let mut all: Vec<_> = servers.into_iter().map(|server| (server.slug, server.transport)).collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn a_program_becomes_a_server_on_the_network_and_back() {
    let stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    let remote = || server("a", json!({"url": stage.upstream.url, "enabled": false}));
    for (operated, transport) in [(program(), "stdio"), (remote(), "http"), (program(), "stdio")] {
        assert!(stage.hub.operate(ADA, vec![operated]).await.unwrap().is_empty());
        assert_eq!(transports(&stage).await, [("a".to_owned(), transport), ("up".to_owned(), "http")]);
    }
    let other = server("a", json!({"command": "false", "enabled": false}));
    stage.hub.operate(ADA, vec![other]).await.unwrap();
    let view = stage.hub.server(person(ADA), "a").await.unwrap();
    assert_eq!((view.command.unwrap(), view.version), (vec!["false".to_owned()], 4));
}

#[tokio::test]
async fn a_program_that_nobody_knows_how_to_start_hides_no_other() {
    let mut stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    stage.hub.operate(ADA, vec![program()]).await.unwrap();
    // Another hub has not read the file yet.
    (stage.hub, stage.store) = open(&stage.place, stage.clock.clone());
    assert_eq!(transports(&stage).await, [("up".to_owned(), "http")]);
    let error = stage.hub.server(person(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "server_not_in_file");
    stage.hub.operate(ADA, vec![program()]).await.unwrap();
    assert_eq!(transports(&stage).await.len(), 2);
    assert_eq!(stage.hub.server(person(ADA), "a").await.unwrap().version, 1, "nothing has changed");
}
