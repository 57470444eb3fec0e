//! Uncertain commits at the start and at the end of a call. The call is never repeated, and its record ends with the
//! true outcome.

use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::events::NewEvent;
use linchpin_hub_core::store::{ApprovalStatus, CallFilter, CallStatus, PageRequest, StoreChange};
use serde_json::json;

use crate::background_loop::RunningHub;
use crate::faulty_store::{Effect, commits, notified};
use crate::fixture::{ADA, Stage, another_hub, local_user, over};

fn starts_call(change: &StoreChange) -> bool {
    matches!(change, StoreChange::InsertCall(call) if call.status == CallStatus::Running)
        || matches!(change, StoreChange::StartCall { .. })
}

fn finishes_call(change: &StoreChange) -> bool {
    matches!(change, StoreChange::FinishCall { .. })
}

#[tokio::test]
async fn a_call_that_may_have_been_kept_is_not_made() {
    for (then, is_kept) in [(Effect::Uncertain, true), (Effect::Lose, false)] {
        let (stage, store) = Stage::gated().await;
        store.once(commits(starts_call), then);
        let error = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap_err();
        assert_eq!((error.kind(), stage.upstream.ran()), (ErrorKind::Unavailable, 0));
        RunningHub::once(&stage.hub, &store).await.end().await;
        let all = stage.hub.calls().list(
            local_user(ADA),
            CallFilter::default(),
            &PageRequest { after: None, limit: 10 },
        );
        let all = all.await.unwrap().items;
        assert_eq!((all.len(), stage.upstream.ran()), (usize::from(is_kept), 0));
        for call in all {
            assert_eq!(call.status, CallStatus::Error);
            assert!(call.error.unwrap().starts_with("the call was not sent: "));
            assert_eq!(stage.audit_of_call(call.id).await, ["call.intent", "call.finished error"]);
        }
    }
}

#[tokio::test]
async fn a_yes_that_may_have_been_kept_is_not_used_twice() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "a"})).await;
    store.once(commits(starts_call), Effect::Uncertain);
    let error = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    stage.hub.shutdown().await; // before the background loop has run
    let over = stage.wait_for_call(call.id).await;
    assert_eq!((over.status, stage.upstream.ran()), (CallStatus::Error, 0));
    let said = ["approval.requested", "approval.granted", "call.intent", "call.finished error"];
    assert_eq!(stage.audit_of_call(call.id).await, said);
}

#[tokio::test]
async fn a_yes_that_was_lost_is_said_again_and_that_call_is_nobodys_doubt() {
    for is_elsewhere in [false, true] {
        let (stage, store) = Stage::gated().await;
        let agent = stage.agent("Asks", "always-ask", &[]).await;
        let (call, approval) = stage.ask(agent, "wait", json!({})).await;
        store.once(commits(starts_call), Effect::Lose);
        let error = stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let asked = stage.hub.calls().approval(local_user(ADA), approval).await.unwrap();
        assert_eq!((asked.decision, asked.call.status), (ApprovalStatus::Open, CallStatus::Pending));
        let mut hub = stage.hub.clone();
        if is_elsewhere {
            stage.clock.advance(1);
            hub = another_hub(&stage.folder, stage.clock.clone(), stage.store.clone());
        }
        hub.calls().approve(local_user(ADA), approval, None).await.unwrap();
        notified(&stage.upstream.started).await;
        let runs = RunningHub::once(&stage.hub, &store).await;
        assert_eq!(
            stage.hub.calls().call(agent, call.id).await.unwrap().status,
            CallStatus::Running,
            "{is_elsewhere}"
        );
        stage.upstream.release.notify_one();
        assert_eq!(over(&hub, call.id).await.status, CallStatus::Success);
        runs.end().await;
        assert_eq!(stage.upstream.ran(), 1);
        let said = ["approval.requested", "approval.granted", "call.intent", "call.finished success"];
        assert_eq!(stage.audit_of_call(call.id).await, said);
    }
}

#[tokio::test]
async fn what_came_of_a_call_is_kept_once_and_told_at_once() {
    for (then, first) in [(Effect::Uncertain, CallStatus::Success), (Effect::Lose, CallStatus::Running)] {
        let (stage, store) = Stage::gated().await;
        store.once(commits(finishes_call), then);
        let mut watching = stage.hub.events().subscribe(ADA, None);
        let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
        let record = async || stage.store.call(ADA, call.id).await.unwrap().unwrap();
        assert_eq!(record().await.status, first);
        for view in [&call, &stage.hub.calls().call(local_user(ADA), call.id).await.unwrap()] {
            assert_eq!((view.status, view.summary.as_deref()), (CallStatus::Success, Some("a")));
        }
        RunningHub::once(&stage.hub, &store).await.end().await;
        let record = record().await;
        assert!(record.status == CallStatus::Success && record.result.is_some(), "{record:?}");
        assert_eq!(stage.audit_of_call(call.id).await, ["call.intent", "call.finished success"]);
        assert_eq!(stage.upstream.ran(), 1);
        stage.hub.events().publish(ADA, NewEvent::new("last", json!({})));
        let mut told = Vec::new();
        loop {
            let event = watching.next().await.unwrap();
            match &*event.kind {
                "call" => told.push(event.body["status"].clone()),
                "last" => break,
                _ => {}
            }
        }
        assert_eq!(told, ["running", "success"], "once each");
    }
}
