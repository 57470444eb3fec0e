//! Cancellation during an approval: whichever is first, a call has exactly one outcome.

use std::sync::Arc;

use linchpin_hub_core::hub::{CallRequest, CallView, ToolRef};
use linchpin_hub_core::id::{ApprovalId, CallId};
use linchpin_hub_core::store::{ApprovalStatus, CallStatus, StoreChange};
use linchpin_hub_core::{Actor, Result};
use serde_json::{Value, json};

use crate::background_task::{BackgroundTask, within_timeout};
use crate::faulty_store::{StoreRequest, commits, notified};
use crate::fixture::{ADA, Stage, local_user};

/// Caller that waits for a call with a pending approval.
struct WaitingCaller {
    call: CallId,
    approval: ApprovalId,
    answer: BackgroundTask<Result<CallView>>,
}

impl WaitingCaller {
    async fn new(stage: &Stage, agent: Actor, tool: &str, arguments: Value) -> Self {
        let mut watching = stage.hub.events().subscribe(ADA, None);
        let wanted = CallRequest::new(ToolRef::Qualified(format!("mcp_up__{tool}")), arguments);
        let hub = stage.hub.clone();
        let answer = BackgroundTask::new(async move { hub.calls().call_tool(agent, wanted, true).await });
        loop {
            let event = within_timeout(watching.next()).await.unwrap();
            if event.kind == "approval" && event.body["decision"] == "open" {
                let id = |name: &str| event.body[name].as_str().unwrap().to_owned();
                let (call, approval) = (id("call").parse().unwrap(), id("approval").parse().unwrap());
                return WaitingCaller { call, approval, answer };
            }
        }
    }

    async fn answer(self) -> CallView {
        self.answer.join().await.unwrap()
    }
}

fn withdraws_approval(change: &StoreChange) -> bool {
    matches!(change, StoreChange::DecideApproval { decision: ApprovalStatus::Withdrawn, .. })
}

fn uses_approval(change: &StoreChange) -> bool {
    matches!(change, StoreChange::ConsumeApproval { .. })
}

#[tokio::test]
async fn a_yes_that_comes_first_is_made_and_then_stopped() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = WaitingCaller::new(&stage, agent, "wait", json!({})).await;
    let (call, approval) = (waits.call, waits.approval);
    let mut watching = stage.hub.events().subscribe(ADA, None);
    let gate = store.hold(commits(withdraws_approval));
    let hub = stage.hub.clone();
    let cancels = BackgroundTask::new(async move { hub.calls().cancel_call(agent, call).await });
    gate.reached().await;
    assert_eq!(
        within_timeout(stage.hub.calls().approve(local_user(ADA), approval, None)).await.unwrap().decision,
        ApprovalStatus::Used
    );
    notified(&stage.upstream.started).await;
    gate.open();
    let cancelled = cancels.join().await.unwrap();
    notified(&stage.upstream.cancelled).await;
    let answer = waits.answer().await;
    for view in [&cancelled, &answer] {
        assert_eq!(view.status, CallStatus::Cancelled);
        assert!(view.started.is_some() && view.error.as_ref().unwrap().contains("while it was running"));
    }
    assert_eq!(
        stage.hub.calls().approval(local_user(ADA), approval).await.unwrap().decision,
        ApprovalStatus::Used
    );
    let said = [
        "approval.requested",
        "approval.granted",
        "call.intent",
        "call.cancelled",
        "call.finished cancelled",
    ];
    assert_eq!(stage.audit_of_call(call).await, said);
    assert_eq!(stage.upstream.ran(), 0);
    // No event reports the approval as withdrawn.
    let mut decisions = Vec::new();
    loop {
        let event = within_timeout(watching.next()).await.unwrap();
        match &*event.kind {
            "approval" => decisions.push(event.body["decision"].clone()),
            "call" if event.body["status"] == "cancelled" => break,
            _ => {}
        }
    }
    assert_eq!(decisions, [json!("used")]);
}

#[tokio::test]
async fn what_a_yes_has_made_is_over_when_it_is_given_up() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = WaitingCaller::new(&stage, agent, "echo", json!({ "message": "made" })).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(commits(withdraws_approval));
    let hub = stage.hub.clone();
    let cancels = BackgroundTask::new(async move { hub.calls().cancel_call(agent, call).await });
    gate.reached().await;
    within_timeout(stage.hub.calls().approve(local_user(ADA), approval, None)).await.unwrap();
    assert_eq!(waits.answer().await.summary.as_deref(), Some("made"));
    gate.open();
    let error = cancels.join().await.unwrap_err();
    assert_eq!((error.code(), stage.upstream.ran()), ("call_finished", 1));
    assert_eq!(stage.hub.calls().call(local_user(ADA), call).await.unwrap().status, CallStatus::Success);
    let said = ["approval.requested", "approval.granted", "call.intent", "call.finished success"];
    assert_eq!(stage.audit_of_call(call).await, said);
}

#[tokio::test]
async fn a_yes_that_comes_second_makes_nothing() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = WaitingCaller::new(&stage, agent, "echo", json!({ "message": "never" })).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(commits(uses_approval));
    let hub = stage.hub.clone();
    let approves =
        BackgroundTask::new(async move { hub.calls().approve(local_user(ADA), approval, None).await });
    gate.reached().await;
    let cancelled = within_timeout(stage.hub.calls().cancel_call(agent, call)).await.unwrap();
    gate.open();
    let error = approves.join().await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    for view in [cancelled, waits.answer().await, stage.hub.calls().call(agent, call).await.unwrap()] {
        assert_eq!((view.status, view.started), (CallStatus::Cancelled, None));
    }
    assert_eq!(
        stage.hub.calls().approval(local_user(ADA), approval).await.unwrap().decision,
        ApprovalStatus::Withdrawn
    );
    stage.hub.shutdown().await; // waits for running calls
    assert_eq!(stage.audit_of_call(call).await, ["approval.requested", "call.cancelled"]);
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn a_second_yes_does_not_hide_how_the_call_is_stopped() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = WaitingCaller::new(&stage, agent, "wait", json!({})).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(commits(uses_approval));
    let hub = stage.hub.clone();
    let second =
        BackgroundTask::new(async move { hub.calls().approve(local_user(ADA), approval, None).await });
    gate.reached().await;
    within_timeout(stage.hub.calls().approve(local_user(ADA), approval, None)).await.unwrap();
    notified(&stage.upstream.started).await;
    gate.open();
    let error = second.join().await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    assert_eq!(
        within_timeout(stage.hub.calls().cancel_call(agent, call)).await.unwrap().status,
        CallStatus::Cancelled
    );
    notified(&stage.upstream.cancelled).await;
    assert_eq!(waits.answer().await.status, CallStatus::Cancelled);
}

#[tokio::test]
async fn whoever_waits_is_told_what_came_of_it_and_not_that_it_goes_on() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let gate = store.hold(|asked| matches!(asked, StoreRequest::Call));
    let waits = WaitingCaller::new(&stage, agent, "wait", json!({})).await;
    gate.reached().await;
    within_timeout(stage.hub.calls().approve(local_user(ADA), waits.approval, None)).await.unwrap();
    notified(&stage.upstream.started).await;
    gate.open();
    stage.upstream.release.notify_one();
    assert_eq!(waits.answer().await.status, CallStatus::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_at_once_have_one_outcome() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    for round in 0..100 {
        // A cancelled call may run after its record is complete: each round counts its own message.
        let message = format!("at once {round}");
        let waits = WaitingCaller::new(&stage, agent, "echo", json!({ "message": message })).await;
        let (call, approval) = (waits.call, waits.approval);
        let start = Arc::new(tokio::sync::Barrier::new(2));
        let (hub, ready) = (stage.hub.clone(), start.clone());
        let cancels = BackgroundTask::new(async move {
            ready.wait().await;
            hub.calls().cancel_call(agent, call).await.map(|view| view.status).map_err(|error| error.code())
        });
        let hub = stage.hub.clone();
        let approves = BackgroundTask::new(async move {
            start.wait().await;
            hub.calls().approve(local_user(ADA), approval, None).await.map(drop).map_err(|error| error.code())
        });
        let (given_up, said_yes) = (cancels.join().await, approves.join().await);
        let (answer, record) = (waits.answer().await, stage.wait_for_call(call).await);
        assert_eq!(answer.status, record.status, "{round}");
        let ran = stage.upstream.echoed.lock().unwrap().iter().filter(|echoed| **echoed == message).count();
        let said = stage.audit_of_call(call).await;
        let is_made = record.started.is_some();
        assert_eq!(said_yes, if is_made { Ok(()) } else { Err("approval_decided") }, "{round}: {said:?}");
        match record.status {
            CallStatus::Cancelled if is_made => {
                assert!(ran <= 1);
                assert_eq!(
                    said[1..],
                    ["approval.granted", "call.intent", "call.cancelled", "call.finished cancelled"]
                );
            }
            CallStatus::Cancelled => {
                assert_eq!((ran, &said[1..]), (0, &["call.cancelled".to_owned()][..]));
            }
            status => {
                assert_eq!((status, ran), (CallStatus::Success, 1), "{round}: {record:?}");
                assert_eq!(
                    said.iter().filter(|said| **said == "call.finished success").count(),
                    1,
                    "{said:?}"
                );
            }
        }
        match given_up {
            Ok(status) => {
                assert_eq!(status, record.status);
                assert_eq!(said.iter().filter(|said| **said == "call.cancelled").count(), 1, "{said:?}");
            }
            Err(code) => assert_eq!((code, record.status), ("call_finished", CallStatus::Success)),
        }
    }
}
