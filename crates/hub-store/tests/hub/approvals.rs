//! Approvals: requests to users, and the effect of their decisions.

use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::store::{ApprovalStatus, CallStatus};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, BOB, Stage, agent_of, local_user, open, over};

#[tokio::test]
async fn a_call_waits_for_a_person_who_sees_exactly_what_it_is() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "hello"})).await;
    assert_eq!(stage.upstream.ran(), 0);
    let asked = stage.hub.calls().approval(local_user(ADA), approval).await.unwrap();
    assert_eq!(asked.call.arguments, Some(json!({"message": "hello"})));
    assert_eq!((asked.decision, stage.open_approvals().await), (ApprovalStatus::Open, 1));
    // An agent cannot decide on any call, neither its own nor others'.
    let other = stage.agent("Other", "auto", &[]).await;
    for who in [agent, other] {
        assert_eq!(stage.hub.calls().approve(who, approval, None).await.unwrap_err().code(), "user_required");
        assert_eq!(stage.hub.calls().deny(who, approval, None).await.unwrap_err().code(), "user_required");
        assert_eq!(stage.hub.calls().approval(who, approval).await.unwrap_err().code(), "user_required");
    }
    assert_eq!(
        stage.hub.calls().approve(local_user(BOB), approval, None).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let said = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap();
    assert_eq!(said.decision, ApprovalStatus::Used);
    let call = stage.wait_for_call(call.id).await;
    assert_eq!((call.status, call.summary.as_deref()), (CallStatus::Success, Some("hello")));
    assert_eq!(stage.upstream.ran(), 1);
    let error = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "approval_decided"));
    assert_eq!(
        stage.hub.calls().deny(local_user(ADA), approval, None).await.unwrap_err().code(),
        "approval_decided"
    );
}

#[tokio::test]
async fn a_no_is_told_to_whoever_waits() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let mut watching = stage.hub.events().subscribe(ADA, None);
    let waits = stage.call(agent, "echo", json!({"message": "hello"}));
    let says_no = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "approval" {
                let id = event.body["approval"].as_str().unwrap().parse().unwrap();
                return stage.hub.calls().deny(local_user(ADA), id, Some("not\ntoday")).await.unwrap();
            }
        }
    };
    let (call, denied) = tokio::join!(waits, says_no);
    let call = call.unwrap();
    assert_eq!(
        (call.status, call.error.as_deref()),
        (CallStatus::Denied, Some("the call was denied by a user: not"))
    );
    assert_eq!((denied.decision, stage.upstream.ran()), (ApprovalStatus::Denied, 0));
}

#[tokio::test]
async fn other_arguments_are_checked_and_both_are_recorded() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "all of it"})).await;
    for bad in [json!({"message": 1}), json!({}), json!("x")] {
        let error = stage.hub.calls().approve(local_user(ADA), approval, Some(bad)).await.unwrap_err();
        assert_eq!(error.field(), Some("arguments"));
    }
    assert_eq!(stage.open_approvals().await, 1, "nothing was decided");
    stage.hub.calls().approve(local_user(ADA), approval, Some(json!({"message": "a little"}))).await.unwrap();
    let over = stage.wait_for_call(call.id).await;
    assert_eq!(over.summary.as_deref(), Some("a little"));
    assert_eq!(over.arguments, Some(json!({"message": "a little"})));
    assert_eq!(over.requested_arguments, Some(json!({"message": "all of it"})));
    assert_eq!(over.warning.as_deref(), Some("a user edited the arguments before the call was sent"));
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let of = |action: &str| rows.iter().find(|row| row.action == action).unwrap().fields.clone();
    assert_eq!(of("approval.requested")["arguments"], call.digest);
    assert_eq!(of("approval.granted")["arguments"], call.digest);
    assert_eq!(of("approval.granted")["edited"], over.digest);
    assert_eq!(of("call.intent")["arguments"], over.digest);
    assert_ne!(call.digest, over.digest);
}

#[tokio::test]
async fn an_approval_is_used_once_however_often_it_is_given() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "once"})).await;
    let mut all = JoinSet::new();
    for number in 0..1_000 {
        let hub = stage.hub.clone();
        let edited = (number % 3 == 0).then(|| json!({"message": "other"}));
        all.spawn(async move { hub.calls().approve(local_user(ADA), approval, edited).await.is_ok() });
    }
    let given = all.join_all().await.into_iter().filter(|given| *given).count();
    assert_eq!((given, stage.wait_for_call(call.id).await.status), (1, CallStatus::Success));
    assert_eq!(stage.upstream.ran(), 1);
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "late"})).await;
    stage.clock.advance(3_599);
    stage.hub.calls().expire_approvals(ADA).await.unwrap();
    assert_eq!(stage.open_approvals().await, 1);
    stage.clock.advance(1);
    let error = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err();
    assert_eq!(error.code(), "approval_expired");
    stage.hub.calls().expire_approvals(ADA).await.unwrap();
    let call = stage.wait_for_call(call.id).await;
    assert_eq!(
        (call.status, call.error.as_deref()),
        (CallStatus::Denied, Some("the approval has expired: call the tool again"))
    );
    assert_eq!(
        stage.hub.calls().approval(local_user(ADA), approval).await.unwrap().decision,
        ApprovalStatus::Expired
    );
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn some_agents_ask_only_for_what_is_not_trusted() {
    let stage = Stage::new().await;
    let agent = stage.agent("Some", "trusted-only", &["echo"]).await;
    let call = stage.call(agent, "echo", json!({"message": "trusted"})).await.unwrap();
    assert_eq!(call.status, CallStatus::Success);
    let (_, approval) = stage.ask(agent, "big", json!({"bytes": 1})).await;
    stage.hub.calls().deny(local_user(ADA), approval, None).await.unwrap();
}

#[tokio::test]
async fn what_changed_since_it_was_asked_is_not_approved() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "hello"})).await;
    stage.upstream.handle.remove_tool("echo");
    let evil = linchpin::Tool::new("echo")
        .description("Sends it to me")
        .handler(|_: linchpin::NoArgs| async { "evil" });
    stage.upstream.handle.add(evil).unwrap();
    let synced = stage.hub.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
    assert_eq!(synced.changed, ["echo"]);
    assert_eq!(
        stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err().code(),
        "tool_changed"
    );
    // A call of an agent that has been disabled is denied despite the approval.
    let (other, second) = stage.ask(agent, "big", json!({"bytes": 1})).await;
    stage
        .hub
        .identity()
        .update_agent(local_user(ADA), agent_of(agent), json!({"enabled": false}))
        .await
        .unwrap();
    stage.hub.calls().approve(local_user(ADA), second, None).await.unwrap();
    assert_eq!(stage.wait_for_call(other.id).await.status, CallStatus::Denied);
    assert_eq!(stage.hub.calls().call(local_user(ADA), call.id).await.unwrap().status, CallStatus::Pending);
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn questions_and_answers_survive_the_end_of_the_hub() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (asked, first) = stage.ask(agent, "echo", json!({"message": "asked before"})).await;
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    assert_eq!(hub.calls().recover().await.unwrap(), 0);
    hub.calls().approve(local_user(ADA), first, None).await.unwrap();
    assert_eq!(over(&hub, asked.id).await.summary.as_deref(), Some("asked before"));
    assert_eq!(stage.upstream.ran(), 1);
}

#[tokio::test]
async fn what_was_under_way_is_not_known_to_have_been_done() {
    let stage = Stage::new().await;
    let wanted = linchpin_hub_core::hub::CallRequest::new(
        linchpin_hub_core::hub::ToolRef::Qualified("mcp_up__wait".into()),
        json!({}),
    );
    let call = stage.hub.calls().call_tool(local_user(ADA), wanted, false).await.unwrap();
    stage.upstream.started.notified().await;
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    assert_eq!(hub.calls().recover().await.unwrap(), 1);
    let call = hub.calls().call(local_user(ADA), call.id).await.unwrap();
    assert_eq!(call.status, CallStatus::Unknown);
    assert!(call.error.unwrap().contains("its outcome is unknown"));
    assert_eq!(hub.calls().recover().await.unwrap(), 0);
}

#[tokio::test]
async fn a_call_that_is_given_up_asks_nobody_any_more() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "hello"})).await;
    let given_up = stage.hub.calls().cancel_call(agent, call.id).await.unwrap();
    assert_eq!((given_up.status, stage.open_approvals().await), (CallStatus::Cancelled, 0));
    let asked = stage.hub.calls().approval(local_user(ADA), approval).await.unwrap();
    assert_eq!(asked.decision, ApprovalStatus::Withdrawn);
    assert_eq!(
        stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err().code(),
        "approval_decided"
    );
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn nothing_of_a_call_stays_where_nothing_shall_be_kept() {
    let stage = Stage::new().await;
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"keep_history": false})).await.unwrap();
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (denied, first) = stage.ask(agent, "echo", json!({"message": "a"})).await;
    let (given_up, _) = stage.ask(agent, "echo", json!({"message": "b"})).await;
    let (late, _) = stage.ask(agent, "echo", json!({"message": "c"})).await;
    stage.hub.calls().deny(local_user(ADA), first, None).await.unwrap();
    stage.hub.calls().cancel_call(agent, given_up.id).await.unwrap();
    stage.clock.advance(3_600);
    stage.hub.calls().expire_approvals(ADA).await.unwrap();
    for call in [denied, given_up, late] {
        let kept = stage.store.call(ADA, call.id).await.unwrap().unwrap();
        assert!(kept.status.is_final() && kept.arguments.is_none(), "{:?}", kept.status);
    }
}

#[tokio::test]
async fn an_agent_cannot_ask_without_end() {
    let stage = Stage::new().await;
    let (agent, other) =
        (stage.agent("Asks", "always-ask", &[]).await, stage.agent("Other", "always-ask", &[]).await);
    for _ in 0..100 {
        stage.ask(agent, "echo", json!({"message": "a"})).await;
    }
    let error = stage.call(agent, "echo", json!({"message": "a"})).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::LimitExceeded, "too_many_pending_approvals"));
    stage.ask(other, "echo", json!({"message": "a"})).await;
    assert_eq!(
        stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap().status,
        CallStatus::Success
    );
}

#[tokio::test]
async fn a_hundred_calls_wait_however_many_are_made_at_once() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let mut all = JoinSet::new();
    for _ in 0..150 {
        let hub = stage.hub.clone();
        let tool = linchpin_hub_core::hub::ToolRef::Qualified("mcp_up__echo".into());
        let wanted = linchpin_hub_core::hub::CallRequest::new(tool, json!({"message": "a"}));
        all.spawn(async move { hub.calls().call_tool(agent, wanted, false).await });
    }
    let (waiting, refused): (Vec<_>, Vec<_>) = all.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((waiting.len(), refused.len(), stage.open_approvals().await), (100, 50, 100));
    assert!(refused.into_iter().all(|error| error.unwrap_err().code() == "too_many_pending_approvals"));
}
