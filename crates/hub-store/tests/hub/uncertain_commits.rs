//! Uncertain commits at the start and at the end of a call. The call is never repeated, and its record ends with the
//! true outcome.

use linchpin_hub_core::Kind;
use linchpin_hub_core::events::Told;
use linchpin_hub_core::store::{CallFilter, Change, Decision, Paging, Status};
use serde_json::json;

use crate::background_loop::Runs;
use crate::faulty_store::{Then, change, heard};
use crate::fixture::{ADA, Stage, another, over, person};

fn begins(change: &Change) -> bool {
    matches!(change, Change::Open(call) if call.status == Status::Running)
        || matches!(change, Change::Start { .. })
}

fn ends(change: &Change) -> bool {
    matches!(change, Change::Finish { .. })
}

#[tokio::test]
async fn a_call_that_may_have_been_kept_is_not_made() {
    for (then, is_kept) in [(Then::Doubt, true), (Then::Lose, false)] {
        let (stage, store) = Stage::gated().await;
        store.once(change(begins), then);
        let error = stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap_err();
        assert_eq!((error.kind(), stage.upstream.ran()), (Kind::Unavailable, 0));
        Runs::once(&stage.hub, &store).await.end().await;
        let all = stage.hub.calls(person(ADA), CallFilter::default(), &Paging { after: None, limit: 10 });
        let all = all.await.unwrap().items;
        assert_eq!((all.len(), stage.upstream.ran()), (usize::from(is_kept), 0));
        for call in all {
            assert_eq!(call.status, Status::Error);
            assert!(call.error.unwrap().starts_with("the call was not sent: "));
            assert_eq!(stage.said(call.id).await, ["call.intent", "call.done error"]);
        }
    }
}

#[tokio::test]
async fn a_yes_that_may_have_been_kept_is_not_used_twice() {
    let (stage, store) = Stage::gated().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "a"})).await;
    store.once(change(begins), Then::Doubt);
    let error = stage.hub.approve(person(ADA), approval, None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let error = stage.hub.approve(person(ADA), approval, None).await.unwrap_err();
    assert_eq!(error.code(), "approval_decided");
    stage.hub.end().await; // before the background loop has run
    let over = stage.over(call.id).await;
    assert_eq!((over.status, stage.upstream.ran()), (Status::Error, 0));
    let said = ["approval.asked", "approval.approved", "call.intent", "call.done error"];
    assert_eq!(stage.said(call.id).await, said);
}

#[tokio::test]
async fn a_yes_that_was_lost_is_said_again_and_that_call_is_nobodys_doubt() {
    for is_elsewhere in [false, true] {
        let (stage, store) = Stage::gated().await;
        let agent = stage.agent("Asks", "always-ask", &[]).await;
        let (call, approval) = stage.ask(agent, "wait", json!({})).await;
        store.once(change(begins), Then::Lose);
        let error = stage.hub.approve(person(ADA), approval, None).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        let asked = stage.hub.approval(person(ADA), approval).await.unwrap();
        assert_eq!((asked.decision, asked.call.status), (Decision::Open, Status::Pending));
        let mut hub = stage.hub.clone();
        if is_elsewhere {
            stage.clock.turn(1);
            hub = another(&stage.place, stage.clock.clone(), stage.store.clone());
        }
        hub.approve(person(ADA), approval, None).await.unwrap();
        heard(&stage.upstream.has_begun).await;
        let runs = Runs::once(&stage.hub, &store).await;
        assert_eq!(stage.hub.call(agent, call.id).await.unwrap().status, Status::Running, "{is_elsewhere}");
        stage.upstream.go_on.notify_one();
        assert_eq!(over(&hub, call.id).await.status, Status::Success);
        runs.end().await;
        assert_eq!(stage.upstream.ran(), 1);
        let said = ["approval.asked", "approval.approved", "call.intent", "call.done success"];
        assert_eq!(stage.said(call.id).await, said);
    }
}

#[tokio::test]
async fn what_came_of_a_call_is_kept_once_and_told_at_once() {
    for (then, first) in [(Then::Doubt, Status::Success), (Then::Lose, Status::Running)] {
        let (stage, store) = Stage::gated().await;
        store.once(change(ends), then);
        let mut watching = stage.hub.events().watch(ADA, None);
        let call = stage.call(person(ADA), "echo", json!({"message": "a"})).await.unwrap();
        let record = async || stage.store.call(ADA, call.id).await.unwrap().unwrap();
        assert_eq!(record().await.status, first);
        for view in [&call, &stage.hub.call(person(ADA), call.id).await.unwrap()] {
            assert_eq!((view.status, view.summary.as_deref()), (Status::Success, Some("a")));
        }
        Runs::once(&stage.hub, &store).await.end().await;
        let record = record().await;
        assert!(record.status == Status::Success && record.result.is_some(), "{record:?}");
        assert_eq!(stage.said(call.id).await, ["call.intent", "call.done success"]);
        assert_eq!(stage.upstream.ran(), 1);
        stage.hub.events().publish(ADA, Told::new("last", json!({})));
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
