//! The status of a server follows whether it can be reached.

use std::time::Duration;

use linchpin_hub_core::connection::Status;
use serde_json::json;

use crate::fixture::{ADA, Stage, person};

const LONG: Duration = Duration::from_secs(30);

async fn status(stage: &Stage) -> Status {
    stage.hub.server(person(ADA), "up").await.unwrap().status
}

#[tokio::test]
async fn a_call_that_does_not_reach_the_server_changes_its_status() {
    let mut stage = Stage::new().await;
    stage.call(person(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    assert_eq!(status(&stage).await, Status::Connected);
    stage.upstream.stop().await;
    let call = stage.call(person(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    assert!(call.error.is_some(), "{call:?}");
    assert_eq!(status(&stage).await, Status::Error);
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_checked() {
    let mut stage = Stage::new().await;
    stage.call(person(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    stage.clock.turn(61);
    stage.hub.check_connections();
    stage.clock.turn(61);
    stage.upstream.stop().await;
    stage.hub.check_connections();
    let noticed = async {
        while status(&stage).await != Status::Error {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, noticed).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_tool_does_not_change_the_status() {
    let stage = Stage::new().await;
    stage.call(person(ADA), "fail", json!({})).await.unwrap();
    assert_eq!(status(&stage).await, Status::Connected);
    stage.hub.enable_server(person(ADA), "up", false).await.unwrap();
    assert_eq!(status(&stage).await, Status::Disabled);
}
