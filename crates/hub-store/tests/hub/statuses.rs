//! The status of a server follows whether it can be reached.

use std::time::Duration;

use linchpin_hub_core::connection::ConnectionStatus;
use serde_json::json;

use crate::fixture::{ADA, Stage, local_user};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

async fn status(stage: &Stage) -> ConnectionStatus {
    stage.hub.registry().server(local_user(ADA), "up").await.unwrap().status
}

#[tokio::test]
async fn a_call_that_does_not_reach_the_server_changes_its_status() {
    let mut stage = Stage::new().await;
    stage.call(local_user(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    assert_eq!(status(&stage).await, ConnectionStatus::Connected);
    stage.upstream.stop().await;
    let call = stage.call(local_user(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    assert!(call.error.is_some(), "{call:?}");
    assert_eq!(status(&stage).await, ConnectionStatus::Error);
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_checked() {
    let mut stage = Stage::new().await;
    stage.call(local_user(ADA), "echo", json!({ "message": "hi" })).await.unwrap();
    stage.clock.advance(61);
    stage.hub.check_connections();
    stage.clock.advance(61);
    stage.upstream.stop().await;
    stage.hub.check_connections();
    let noticed = async {
        while status(&stage).await != ConnectionStatus::Error {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, noticed).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_tool_does_not_change_the_status() {
    let stage = Stage::new().await;
    stage.call(local_user(ADA), "fail", json!({})).await.unwrap();
    assert_eq!(status(&stage).await, ConnectionStatus::Connected);
    stage.hub.registry().enable_server(local_user(ADA), "up", false).await.unwrap();
    assert_eq!(status(&stage).await, ConnectionStatus::Disabled);
}
