//! Cancellation during an approval: whichever is first, a call has exactly one outcome.

use std::sync::Arc;

use linchpin_hub_core::hub::{CallView, Wanted, Which};
use linchpin_hub_core::id::{ApprovalId, CallId};
use linchpin_hub_core::store::{Change, Decision, Status};
use linchpin_hub_core::{Result, Scope};
use serde_json::{Value, json};

use crate::background_task::{Aside, soon};
use crate::faulty_store::{Asked, change, heard};
use crate::fixture::{ADA, Stage, person};

/// Caller that waits for a call with a pending approval.
struct Waits {
    call: CallId,
    approval: ApprovalId,
    answer: Aside<Result<CallView>>,
}

impl Waits {
    async fn new(stage: &Stage, agent: Scope, tool: &str, arguments: Value) -> Self {
        let mut watching = stage.hub.events().watch(ADA, None);
        let wanted = Wanted { tool: Which::Local(format!("mcp_up__{tool}")), arguments };
        let hub = stage.hub.clone();
        let answer = Aside::new(async move { hub.call_tool(agent, wanted, true).await });
        loop {
            let event = soon(watching.next()).await.unwrap();
            if event.kind == "approval" && event.body["decision"] == "open" {
                let id = |name: &str| event.body[name].as_str().unwrap().to_owned();
                let (call, approval) = (id("call").parse().unwrap(), id("approval").parse().unwrap());
                return Waits { call, approval, answer };
            }
        }
    }

    async fn answer(self) -> CallView {
        self.answer.done().await.unwrap()
    }
}

fn gives_up(change: &Change) -> bool {
    matches!(change, Change::Decide { decision: Decision::Withdrawn, .. })
}

fn is_use(change: &Change) -> bool {
    matches!(change, Change::Use { .. })
}

#[tokio::test]
async fn a_yes_that_comes_first_is_made_and_then_stopped() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = Waits::new(&stage, agent, "wait", json!({})).await;
    let (call, approval) = (waits.call, waits.approval);
    let mut watching = stage.hub.events().watch(ADA, None);
    let gate = store.hold(change(gives_up));
    let hub = stage.hub.clone();
    let cancels = Aside::new(async move { hub.cancel_call(agent, call).await });
    gate.came().await;
    assert_eq!(soon(stage.hub.approve(person(ADA), approval, None)).await.unwrap().decision, Decision::Used);
    heard(&stage.upstream.has_begun).await;
    gate.open();
    let cancelled = cancels.done().await.unwrap();
    heard(&stage.upstream.given_up).await;
    let answer = waits.answer().await;
    for view in [&cancelled, &answer] {
        assert_eq!(view.status, Status::Cancelled);
        assert!(view.started.is_some() && view.error.as_ref().unwrap().contains("while it was running"));
    }
    assert_eq!(stage.hub.approval(person(ADA), approval).await.unwrap().decision, Decision::Used);
    let said =
        ["approval.asked", "approval.approved", "call.intent", "call.cancelled", "call.done cancelled"];
    assert_eq!(stage.said(call).await, said);
    assert_eq!(stage.upstream.ran(), 0);
    // No event reports the approval as withdrawn.
    let mut decisions = Vec::new();
    loop {
        let event = soon(watching.next()).await.unwrap();
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
    let waits = Waits::new(&stage, agent, "echo", json!({ "message": "made" })).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(change(gives_up));
    let hub = stage.hub.clone();
    let cancels = Aside::new(async move { hub.cancel_call(agent, call).await });
    gate.came().await;
    soon(stage.hub.approve(person(ADA), approval, None)).await.unwrap();
    assert_eq!(waits.answer().await.summary.as_deref(), Some("made"));
    gate.open();
    let error = cancels.done().await.unwrap_err();
    assert_eq!((error.code(), stage.upstream.ran()), ("call_over", 1));
    assert_eq!(stage.hub.call(person(ADA), call).await.unwrap().status, Status::Success);
    let said = ["approval.asked", "approval.approved", "call.intent", "call.done success"];
    assert_eq!(stage.said(call).await, said);
}

#[tokio::test]
async fn a_yes_that_comes_second_makes_nothing() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = Waits::new(&stage, agent, "echo", json!({ "message": "never" })).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(change(is_use));
    let hub = stage.hub.clone();
    let approves = Aside::new(async move { hub.approve(person(ADA), approval, None).await });
    gate.came().await;
    let cancelled = soon(stage.hub.cancel_call(agent, call)).await.unwrap();
    gate.open();
    let error = approves.done().await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    for view in [cancelled, waits.answer().await, stage.hub.call(agent, call).await.unwrap()] {
        assert_eq!((view.status, view.started), (Status::Cancelled, None));
    }
    assert_eq!(stage.hub.approval(person(ADA), approval).await.unwrap().decision, Decision::Withdrawn);
    stage.hub.end().await; // waits for running calls
    assert_eq!(stage.said(call).await, ["approval.asked", "call.cancelled"]);
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn a_second_yes_does_not_hide_how_the_call_is_stopped() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let waits = Waits::new(&stage, agent, "wait", json!({})).await;
    let (call, approval) = (waits.call, waits.approval);
    let gate = store.hold(change(is_use));
    let hub = stage.hub.clone();
    let second = Aside::new(async move { hub.approve(person(ADA), approval, None).await });
    gate.came().await;
    soon(stage.hub.approve(person(ADA), approval, None)).await.unwrap();
    heard(&stage.upstream.has_begun).await;
    gate.open();
    let error = second.done().await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    assert_eq!(soon(stage.hub.cancel_call(agent, call)).await.unwrap().status, Status::Cancelled);
    heard(&stage.upstream.given_up).await;
    assert_eq!(waits.answer().await.status, Status::Cancelled);
}

#[tokio::test]
async fn whoever_waits_is_told_what_came_of_it_and_not_that_it_goes_on() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let gate = store.hold(|asked| matches!(asked, Asked::Call));
    let waits = Waits::new(&stage, agent, "wait", json!({})).await;
    gate.came().await;
    soon(stage.hub.approve(person(ADA), waits.approval, None)).await.unwrap();
    heard(&stage.upstream.has_begun).await;
    gate.open();
    stage.upstream.go_on.notify_one();
    assert_eq!(waits.answer().await.status, Status::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_at_once_have_one_outcome() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    for round in 0..100 {
        let before = stage.upstream.ran();
        let waits = Waits::new(&stage, agent, "echo", json!({ "message": "at once" })).await;
        let (call, approval) = (waits.call, waits.approval);
        let start = Arc::new(tokio::sync::Barrier::new(2));
        let (hub, ready) = (stage.hub.clone(), start.clone());
        let cancels = Aside::new(async move {
            ready.wait().await;
            hub.cancel_call(agent, call).await.map(|view| view.status).map_err(|error| error.code())
        });
        let hub = stage.hub.clone();
        let approves = Aside::new(async move {
            start.wait().await;
            hub.approve(person(ADA), approval, None).await.map(drop).map_err(|error| error.code())
        });
        let (given_up, said_yes) = (cancels.done().await, approves.done().await);
        let (answer, record) = (waits.answer().await, stage.over(call).await);
        assert_eq!(answer.status, record.status, "{round}");
        let ran = stage.upstream.ran() - before;
        let said = stage.said(call).await;
        let is_made = record.started.is_some();
        assert_eq!(said_yes, if is_made { Ok(()) } else { Err("approval_decided") }, "{round}: {said:?}");
        match record.status {
            Status::Cancelled if is_made => {
                assert!(ran <= 1);
                assert_eq!(
                    said[1..],
                    ["approval.approved", "call.intent", "call.cancelled", "call.done cancelled"]
                );
            }
            Status::Cancelled => {
                assert_eq!((ran, &said[1..]), (0, &["call.cancelled".to_owned()][..]));
            }
            status => {
                assert_eq!((status, ran), (Status::Success, 1), "{round}: {record:?}");
                assert_eq!(said.iter().filter(|said| **said == "call.done success").count(), 1, "{said:?}");
            }
        }
        match given_up {
            Ok(status) => {
                assert_eq!(status, record.status);
                assert_eq!(said.iter().filter(|said| **said == "call.cancelled").count(), 1, "{said:?}");
            }
            Err(code) => assert_eq!((code, record.status), ("call_over", Status::Success)),
        }
    }
}
