//! Requests of MCP clients that wait for an approval: an equal request continues the call, and a lost client withdraws
//! it.

use std::sync::Arc;
use std::time::Duration;

use linchpin::client::ServerRequest;
use linchpin::model::{LogLevel, LogParams};
use linchpin_hub_core::hub::{
    CallOptions, CallProgress, CallRequest, CallView, CallingClient, ClientCall, ClientReply, Hub, ToolRef,
};
use linchpin_hub_core::store::{ApprovalStatus, CallStatus};
use linchpin_hub_core::{Actor, ErrorKind};
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user, open, over, said};

/// Client that takes part in no call.
struct SilentClient;

impl CallingClient for SilentClient {
    fn progress(&self, _: &CallProgress) {}

    fn log(&self, _: LogParams) {}

    fn log_level(&self) -> Option<LogLevel> {
        None
    }

    fn task_started(&self) {}

    fn elicitation_completed(&self, _: &str) {}

    fn reply(&self, request: ServerRequest, _: Option<String>) -> ClientReply {
        Box::pin(async move { request.cancel() })
    }
}

async fn start(hub: &Arc<Hub>, actor: Actor, arguments: Value) -> ClientCall {
    let request = CallRequest::new(ToolRef::Qualified("mcp_up__echo".into()), arguments);
    let options = CallOptions { client: Some(Arc::new(SilentClient)), ..CallOptions::default() };
    hub.calls().start_for_client(actor, request, options).await.unwrap()
}

/// Sends a request that waits for approval.
async fn send(hub: &Arc<Hub>, actor: Actor, message: &str) -> CallView {
    let view = start(hub, actor, json!({ "message": message })).await.outcome().await.unwrap();
    assert_eq!(view.status, CallStatus::Pending);
    view
}

#[tokio::test]
async fn an_equal_request_continues_the_call_until_its_outcome_was_returned() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let first = send(&stage.hub, agent, "hello").await;
    let again = send(&stage.hub, agent, "hello").await;
    assert_eq!((again.id, again.approval), (first.id, first.approval));
    let other = send(&stage.hub, agent, "another").await;
    assert_ne!(other.id, first.id);
    assert_eq!(stage.open_approvals().await, 2);
    stage.hub.calls().approve(local_user(ADA), first.approval.unwrap(), None).await.unwrap();
    stage.wait_for_call(first.id).await;
    // The client that was gone while the approval was given collects the result, as often as it asks.
    for _ in 0..2 {
        let found = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
        assert_eq!((found.id, found.summary.as_deref()), (first.id, Some("hello")));
    }
    assert_eq!(stage.upstream.ran(), 1);
    stage.hub.calls().end_waiting(ADA, first.id).await.unwrap();
    let next = send(&stage.hub, agent, "hello").await;
    assert_ne!(next.id, first.id);
    let said = said(&stage.hub, first.id).await;
    let resumed = said.iter().filter(|action| *action == "call.resumed").count();
    assert_eq!(resumed, 3, "{said:?}");
}

#[tokio::test]
async fn a_denial_is_returned_to_an_equal_request() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let first = send(&stage.hub, agent, "hello").await;
    stage.hub.calls().deny(local_user(ADA), first.approval.unwrap(), Some("not today")).await.unwrap();
    let found = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_eq!((found.id, found.status), (first.id, CallStatus::Denied));
    assert!(found.error.unwrap().ends_with("not today"));
}

#[tokio::test]
async fn another_caller_never_continues_a_call() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let other = stage.agent("Also asks", "always-ask", &[]).await;
    let first = send(&stage.hub, agent, "hello").await;
    let second = send(&stage.hub, other, "hello").await;
    assert_ne!(first.id, second.id);
    let error = stage.hub.calls().decide_by_client(other, first.approval.unwrap(), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn the_request_of_a_lost_client_is_withdrawn() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = send(&stage.hub, agent, "hello").await;
    let calls = stage.hub.calls();
    // The client is present for another minute.
    stage.clock.advance(100);
    calls.attend(agent, call.id, Duration::from_mins(1)).await.unwrap();
    stage.clock.advance(59);
    calls.withdraw_lost_requests(ADA).await.unwrap();
    assert_eq!(stage.open_approvals().await, 1);
    stage.clock.advance(2);
    calls.withdraw_lost_requests(ADA).await.unwrap();
    let withdrawn = stage.wait_for_call(call.id).await;
    assert_eq!(withdrawn.status, CallStatus::Cancelled);
    assert!(withdrawn.error.unwrap().contains("the client disconnected"));
    let approval = calls.approval(local_user(ADA), call.approval.unwrap()).await.unwrap();
    assert_eq!((approval.decision, approval.decided_by.as_deref()), (ApprovalStatus::Withdrawn, Some("hub")));
    let late = calls.approve(local_user(ADA), call.approval.unwrap(), None).await.unwrap_err();
    assert_eq!(late.code(), "approval_decided");
    // The next equal request is a new one.
    assert_ne!(send(&stage.hub, agent, "hello").await.id, call.id);
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn a_result_that_no_client_collects_is_forgotten() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = send(&stage.hub, agent, "hello").await;
    let calls = stage.hub.calls();
    calls.approve(local_user(ADA), call.approval.unwrap(), None).await.unwrap();
    stage.wait_for_call(call.id).await;
    stage.clock.advance(10 * 60);
    calls.withdraw_lost_requests(ADA).await.unwrap();
    let found = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_eq!(found.id, call.id, "after ten minutes it is still there");
    stage.clock.advance(2 * 60 * 60);
    calls.withdraw_lost_requests(ADA).await.unwrap();
    assert_ne!(send(&stage.hub, agent, "hello").await.id, call.id);
}

#[tokio::test]
async fn a_waiting_request_survives_a_restart_and_runs_once() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = send(&stage.hub, agent, "hello").await;
    let Stage { hub, store, clock, upstream, folder } = stage;
    drop((hub, store));
    let (hub, _store) = open(&folder, clock);
    assert_eq!(send(&hub, agent, "hello").await.id, call.id);
    hub.calls().approve(local_user(ADA), call.approval.unwrap(), None).await.unwrap();
    assert_eq!(over(&hub, call.id).await.status, CallStatus::Success);
    let found = start(&hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_eq!((found.id, found.summary.as_deref()), (call.id, Some("hello")));
    assert_eq!(upstream.ran(), 1);
}

#[tokio::test]
async fn the_user_of_a_client_decides_unless_the_agent_forbids_it() {
    let stage = Stage::new().await;
    let calls = stage.hub.calls();
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = send(&stage.hub, agent, "hello").await;
    calls.decide_by_client(agent, call.approval.unwrap(), true).await.unwrap();
    assert_eq!(stage.wait_for_call(call.id).await.status, CallStatus::Success);
    let again = calls.decide_by_client(agent, call.approval.unwrap(), true).await.unwrap_err();
    assert_eq!(again.code(), "approval_decided");
    let denied = send(&stage.hub, agent, "no").await;
    calls.decide_by_client(agent, denied.approval.unwrap(), false).await.unwrap();
    assert_eq!(stage.wait_for_call(denied.id).await.status, CallStatus::Denied);
    let approval = calls.approval(local_user(ADA), denied.approval.unwrap()).await.unwrap();
    assert_eq!(approval.decided_by, Some(agent.subject().to_string()));

    let forbidden = json!({ "client_approvals": false });
    stage.hub.identity().update_agent(local_user(ADA), agent.agent().unwrap(), forbidden).await.unwrap();
    assert!(!calls.accepts_client_approvals(agent).await.unwrap());
    let call = send(&stage.hub, agent, "later").await;
    let error = calls.decide_by_client(agent, call.approval.unwrap(), true).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::PermissionDenied, "user_required"));
    assert_eq!(stage.upstream.ran(), 1);
}

#[tokio::test]
async fn an_approval_rule_that_appears_meanwhile_runs_no_call_twice() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = send(&stage.hub, agent, "hello").await;
    let rule = linchpin_hub_core::object_reader::ObjectReader::new(json!({ "minutes": 60 })).unwrap();
    let calls = stage.hub.calls();
    calls.approve_with_rule(local_user(ADA), call.approval.unwrap(), None, Some(rule)).await.unwrap();
    stage.wait_for_call(call.id).await;
    // The client has timed out and sends the request again, which the rule would allow.
    let found = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_eq!((found.id, stage.upstream.ran()), (call.id, 1));
    calls.end_waiting(ADA, call.id).await.unwrap();
    let next = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_eq!((next.status, stage.upstream.ran()), (CallStatus::Success, 2));
}

#[tokio::test]
async fn a_request_that_continues_a_call_needs_no_place_below_the_limits() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let first = send(&stage.hub, agent, "hello").await;
    stage.hub.calls().approve(local_user(ADA), first.approval.unwrap(), None).await.unwrap();
    stage.wait_for_call(first.id).await;
    // The next calls need no approval, but another call takes the only place.
    let limited = json!({ "approval": "auto", "max_concurrent_calls": 1 });
    stage.hub.identity().update_agent(local_user(ADA), agent.agent().unwrap(), limited).await.unwrap();
    let wait = CallRequest::new(ToolRef::Qualified("mcp_up__wait".into()), json!({}));
    stage.hub.calls().call_tool(agent, wait, false).await.unwrap();
    for _ in 0..3 {
        let found = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
        assert_eq!(found.id, first.id);
    }
    stage.upstream.release.notify_one();
}

#[tokio::test]
async fn a_call_that_a_user_has_cancelled_is_not_continued() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let first = send(&stage.hub, agent, "hello").await;
    stage.hub.calls().cancel_call(local_user(ADA), first.id).await.unwrap();
    let auto = json!({ "approval": "auto" });
    stage.hub.identity().update_agent(local_user(ADA), agent.agent().unwrap(), auto).await.unwrap();
    let next = start(&stage.hub, agent, json!({ "message": "hello" })).await.outcome().await.unwrap();
    assert_ne!(next.id, first.id);
    assert_eq!((next.status, stage.upstream.ran()), (CallStatus::Success, 1));
}

#[tokio::test]
async fn an_earlier_request_that_ends_does_not_affect_the_one_that_continues_the_call() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let lost = start(&stage.hub, agent, json!({ "message": "hello" })).await;
    let (id, lost) = (lost.id(), lost.participation());
    let calls = stage.hub.calls();
    let second = start(&stage.hub, agent, json!({ "message": "hello" })).await;
    assert_eq!(second.id(), id);
    calls.attend(agent, id, Duration::from_mins(10)).await.unwrap();
    // The hub notices only now that the first connection is gone.
    calls.leave(agent, lost);
    stage.hub.shutdown().await;
    stage.clock.advance(5 * 60);
    calls.withdraw_lost_requests(ADA).await.unwrap();
    assert_eq!(stage.open_approvals().await, 1);
}
