//! Calls: from the caller to the stored record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::hub::{CallRequest, Hub, HubLimits, HubOptions, ServerFilter, ToolFilter, ToolRef};
use linchpin_hub_core::id::CallId;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{Batch, CallFilter, CallRecord, CallStatus, PageRequest, StoreChange};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_store::Sqlite;
use serde_json::json;

use crate::faulty_store::commits;
use crate::fixture::{ADA, BOB, Stage, agent_of, local_user};

#[tokio::test]
async fn a_persons_call_is_its_own_approval_and_recorded() {
    let stage = Stage::new().await;
    let call = stage.call(local_user(ADA), "echo", json!({"message": "hello"})).await.unwrap();
    assert_eq!((call.status, call.summary.as_deref()), (CallStatus::Success, Some("hello")));
    assert_eq!(call.arguments, Some(json!({"message": "hello"})));
    assert!(call.started.is_some() && call.completed.is_some() && call.approval.is_none());
    assert_eq!(call.name.as_deref(), Some("mcp_up__echo"));
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let of_call: Vec<_> = rows.iter().filter(|row| row.fields["call"] == call.id.to_string()).collect();
    let actions: Vec<_> = of_call.iter().map(|row| &*row.action).collect();
    assert_eq!(actions, ["call.intent", "call.finished"]);
    assert_eq!(
        (&of_call[0].fields["reason"], &of_call[1].fields["status"]),
        (&json!("own_call"), &json!("success"))
    );
    assert!(!serde_json::to_string(&rows).unwrap().contains("hello"), "the audit contains only digests");
    assert_eq!(stage.upstream.ran(), 1);
}

#[tokio::test]
async fn what_does_not_fit_is_not_sent() {
    let stage = Stage::new().await;
    for arguments in [json!({}), json!({"message": 1}), json!({"message": "a", "more": 1})] {
        let call = stage.call(local_user(ADA), "echo", arguments.clone()).await.unwrap();
        if arguments.get("more").is_some() && call.status == CallStatus::Success {
            continue; // the schema allows additional properties
        }
        assert_eq!(call.status, CallStatus::Error, "{arguments}");
        assert!(
            call.error.unwrap().starts_with("the arguments do not match the input schema of the tool: "),
            "{arguments}"
        );
        assert!(call.started.is_none());
    }
    let error = stage.call(local_user(ADA), "echo", json!([1])).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("arguments")));
    let error = stage.call(local_user(ADA), "none", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `mcp_up__none`");
}

#[tokio::test]
async fn failures_have_their_names() {
    let stage = Stage::new().await;
    let call = stage.call(local_user(ADA), "fail", json!({})).await.unwrap();
    assert_eq!((call.status, call.error.as_deref()), (CallStatus::Error, Some("it cannot be done")));
    let call = stage.call(local_user(ADA), "big", json!({"bytes": 300_000})).await.unwrap();
    assert_eq!(call.status, CallStatus::Success);
    assert!(call.warning.unwrap().contains("truncated to 200000"));
    assert!(call.result.unwrap().to_string().len() < 201_000);
    stage.hub.set_limits(HubLimits { result_bytes: 2_000, ..HubLimits::default() });
    let call = stage.call(local_user(ADA), "big", json!({"bytes": 3_000})).await.unwrap();
    assert!(call.warning.unwrap().contains("truncated to 2000"), "the limit applies to the next result");
    // More than the connection accepts.
    let call = stage.call(local_user(ADA), "big", json!({"bytes": 50_000_000})).await.unwrap();
    assert_ne!(call.status, CallStatus::Success);
    assert!(call.result.is_none() && call.error.is_some());
    let call = stage.call(local_user(ADA), "echo", json!({"message": "after it"})).await.unwrap();
    assert_eq!(call.status, CallStatus::Success);
}

#[tokio::test]
async fn a_call_under_way_is_given_up() {
    let stage = Stage::new().await;
    let hub = stage.hub.clone();
    let wanted = CallRequest::new(ToolRef::Upstream { server: "up".into(), tool: "wait".into() }, json!({}));
    let call = hub.calls().call_tool(local_user(ADA), wanted, false).await.unwrap();
    assert_eq!(call.status, CallStatus::Running);
    stage.upstream.started.notified().await;
    let call = hub.calls().cancel_call(local_user(ADA), call.id).await.unwrap();
    assert_eq!(call.status, CallStatus::Cancelled);
    let error = hub.calls().cancel_call(local_user(ADA), call.id).await.unwrap_err();
    assert_eq!(error.code(), "call_finished");
    assert_eq!(stage.upstream.ran(), 0);
}

#[tokio::test]
async fn whoever_asked_may_leave() {
    let stage = Stage::new().await;
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__wait".into()), json!({}));
    let mut call = Box::pin(stage.hub.calls().call_tool(local_user(ADA), wanted, true));
    tokio::select! {
        _ = &mut call => panic!("the tool was not released"),
        () = stage.upstream.started.notified() => {}
    }
    drop(call);
    let all = stage
        .hub
        .calls()
        .list(local_user(ADA), CallFilter::default(), &PageRequest { after: None, limit: 10 })
        .await
        .unwrap();
    let id = all.items[0].id;
    assert_eq!(all.items[0].status, CallStatus::Running);
    stage.upstream.release.notify_one();
    assert_eq!(stage.wait_for_call(id).await.status, CallStatus::Success);
}

#[tokio::test]
async fn nothing_is_kept_where_nothing_shall_be() {
    let stage = Stage::new().await;
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"keep_history": false})).await.unwrap();
    let call = stage.call(local_user(ADA), "echo", json!({"message": "private"})).await.unwrap();
    assert_eq!((call.status, call.summary.as_deref()), (CallStatus::Success, Some("private")));
    let kept = stage.store.call(ADA, call.id).await.unwrap().unwrap();
    assert_eq!((kept.arguments, kept.result), (None, None));
    // Without history, the arguments of a pending call are stored until it has run.
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let (call, approval) = stage.ask(agent, "echo", json!({"message": "private"})).await;
    stage.hub.calls().approve(local_user(ADA), approval, None).await.unwrap();
    assert_eq!(stage.wait_for_call(call.id).await.status, CallStatus::Success);
    let kept = stage.store.call(ADA, call.id).await.unwrap().unwrap();
    assert_eq!((kept.arguments, kept.result), (None, None));
}

#[tokio::test]
async fn a_server_takes_so_many_calls_a_minute() {
    let stage = Stage::new().await;
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"calls_per_minute": 3})).await.unwrap();
    for _ in 0..3 {
        stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    }
    let error = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::LimitExceeded, "rate_limited"));
    assert!(error.message().ends_with("try again in 20 s"), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(20)));
    assert_eq!(stage.upstream.ran(), 3);
    stage.clock.advance(20);
    stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert!(stage.actions().await.contains(&"call.rate_limited".to_owned()));
}

#[tokio::test]
async fn an_agent_sees_and_calls_what_it_was_given_and_nothing_else() {
    let stage = Stage::new().await;
    let all = stage.hub.registry().tools(local_user(ADA), &ToolFilter::default()).await.unwrap();
    let names: Vec<_> = all.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names.len(), 6);
    assert!(names.iter().any(|name| name.starts_with("mcp_up__dots_and_more_")), "{names:?}");
    let form = json!({"name": "One", "approval": "auto", "servers": {"up": {"tools": ["echo"]}}});
    let agent = stage.hub.identity().add_agent(local_user(ADA), form).await.unwrap();
    let agent = linchpin_hub_core::Actor::new(ADA, linchpin_hub_core::Subject::Agent(agent.summary.id));
    let own = stage.hub.registry().tools(agent, &ToolFilter::default()).await.unwrap();
    assert_eq!(own.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["mcp_up__echo"]);
    assert_eq!(
        stage.hub.registry().tool(agent, "mcp_up__big").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(stage.call(agent, "echo", json!({"message": "a"})).await.unwrap().status, CallStatus::Success);
    let denied = stage.call(agent, "big", json!({"bytes": 1})).await.unwrap_err();
    assert_eq!((denied.kind(), denied.message()), (ErrorKind::NotFound, "there is no tool `mcp_up__big`"));
    // An agent sees only its own calls.
    let own = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    assert_eq!(stage.hub.calls().call(agent, own.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    let paging = PageRequest { after: None, limit: 100 };
    assert_eq!(stage.hub.calls().list(agent, CallFilter::default(), &paging).await.unwrap().items.len(), 1);
    assert_eq!(
        stage.hub.calls().list(local_user(ADA), CallFilter::default(), &paging).await.unwrap().items.len(),
        2
    );
    // Operations of users are denied.
    assert_eq!(
        stage.hub.registry().servers(agent, &ServerFilter::default()).await.unwrap_err().code(),
        "user_required"
    );
    assert_eq!(
        stage.hub.identity().remove_agent(agent, agent_of(agent)).await.unwrap_err().code(),
        "user_required"
    );
    // Another tenant sees none of it.
    assert_eq!(
        stage.hub.calls().call(local_user(BOB), own.id).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(stage.hub.registry().tools(local_user(BOB), &ToolFilter::default()).await.unwrap().len(), 0);
    assert_eq!(
        stage.hub.registry().tool(local_user(BOB), "mcp_up__echo").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let before = stage.upstream.ran.load(Ordering::SeqCst);
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__echo".into()), json!({"message": "a"}));
    assert_eq!(
        stage.hub.calls().call_tool(local_user(BOB), wanted, true).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(stage.upstream.ran(), before);
}

#[tokio::test]
async fn what_is_old_is_forgotten_and_the_audit_stays() {
    let stage = Stage::new().await;
    let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    let entries = stage.actions().await.len();
    stage.clock.advance(31 * 24 * 3_600);
    let newer = stage.call(local_user(ADA), "echo", json!({"message": "b"})).await.unwrap();
    stage.hub.audit().prune_calls(ADA).await.unwrap();
    assert_eq!(
        stage.hub.calls().call(local_user(ADA), call.id).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(stage.hub.calls().call(local_user(ADA), newer.id).await.unwrap().status, CallStatus::Success);
    assert!(stage.actions().await.len() > entries);
}

#[tokio::test]
async fn a_large_backlog_of_old_calls_is_deleted_in_batches() {
    let (stage, store) = Stage::gated().await;
    let call = stage.call(local_user(ADA), "echo", json!({"message": "a"})).await.unwrap();
    let old = stage.store.call(ADA, call.id).await.unwrap().unwrap();
    let mut batch = Batch::new();
    for number in 0..450 {
        let call = CallRecord { id: CallId::from_u128(number), ..old.clone() };
        batch = batch.change(StoreChange::InsertCall(Box::new(call)));
    }
    stage.store.commit(ADA, batch).await.unwrap();
    stage.clock.advance(31 * 24 * 3_600);
    let newer = stage.call(local_user(ADA), "echo", json!({"message": "b"})).await.unwrap();
    let count = Arc::<AtomicUsize>::default();
    let counted = count.clone();
    let is_forget = commits(|change| matches!(change, StoreChange::PruneCalls { .. }));
    store.notify(move |asked| {
        counted.fetch_add(usize::from(is_forget(asked)), Ordering::SeqCst);
        false
    });
    stage.hub.audit().prune_calls(ADA).await.unwrap();
    let paging = PageRequest { after: None, limit: 500 };
    let left = stage.hub.calls().list(local_user(ADA), CallFilter::default(), &paging).await.unwrap();
    assert_eq!(left.items.iter().map(|call| call.id).collect::<Vec<_>>(), [newer.id]);
    assert!(count.load(Ordering::SeqCst) > 3, "one commit deletes a bounded number of calls");
}

#[tokio::test]
async fn what_is_under_way_when_the_hub_ends_is_said_to_be_unknown() {
    let stage = Stage::new().await;
    // The call ends at the timeout of its server, within a second.
    stage.hub.registry().update_server(local_user(ADA), "up", json!({"timeout_ms": 1_000})).await.unwrap();
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__wait".into()), json!({}));
    let call = stage.hub.calls().call_tool(local_user(ADA), wanted, false).await.unwrap();
    stage.upstream.started.notified().await;
    stage.hub.shutdown().await;
    let call = stage.hub.calls().call(local_user(ADA), call.id).await.unwrap();
    assert_eq!(call.status, CallStatus::Unknown);
    assert!(call.error.unwrap().starts_with("no response within 1s"));
    let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__echo".into()), json!({"message": "late"}));
    let error = stage.hub.calls().call_tool(local_user(ADA), wanted, true).await.unwrap_err();
    assert_eq!((error.code(), stage.upstream.ran()), ("shutting_down", 0));
}

#[tokio::test]
async fn why_a_call_failed_is_sealed_too() {
    let stage = Stage::new().await;
    let canary = "canary-in-an-error";
    let call =
        stage.call(local_user(ADA), "echo", json!({ canary: canary, "message": [canary] })).await.unwrap();
    assert!(call.error.unwrap().contains(canary));
    for file in std::fs::read_dir(stage.folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(canary.len()).any(|part| part == canary.as_bytes()));
    }
    let all = stage
        .hub
        .calls()
        .list(local_user(ADA), CallFilter::default(), &PageRequest { after: None, limit: 1 })
        .await
        .unwrap();
    assert!(all.items[0].error.as_ref().unwrap().contains(canary), "users see it");
}

#[tokio::test]
async fn without_room_nothing_is_called_and_with_it_everything_goes_on() {
    let stage = Stage::new().await;
    let path = stage.folder.path().join("hub.db");
    let size = std::fs::metadata(&path).unwrap().len();
    let store = Arc::new(Sqlite::open_bounded(&path, size + (1 << 20)).unwrap());
    let (keys, _) = KeyFile::open(&stage.folder.path().join("keys"), &SystemPlatform).unwrap();
    let hub = Arc::new(Hub::new(stage.clock.clone(), store, keys, Egress::default(), HubOptions::default()));
    let call = || {
        let tool = ToolRef::Qualified("mcp_up__echo".to_owned());
        let wanted = CallRequest::new(tool, json!({ "message": "x".repeat(50_000) }));
        hub.calls().call_tool(local_user(ADA), wanted, true)
    };
    let mut made = 0;
    let error = loop {
        match call().await {
            Ok(view) => assert_eq!(view.status, CallStatus::Success),
            Err(error) => break error,
        }
        made += 1;
        assert!(made < 100, "the disk is never full");
    };
    assert_eq!(error.message(), "the disk is full: nothing can be stored until there is free space");
    assert!(made > 0 && stage.upstream.ran() == made);
    assert_eq!(call().await.unwrap_err().code(), "store_unavailable");
    assert_eq!(stage.upstream.ran(), made, "a call that cannot be recorded is not executed");

    rusqlite::Connection::open(&path).unwrap().execute("DELETE FROM calls", []).unwrap();
    assert_eq!(call().await.unwrap().status, CallStatus::Success);
    assert_eq!(stage.upstream.ran(), made + 1);
}
