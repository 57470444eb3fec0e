//! Server requests of running calls: who sees them, who replies, and what becomes of them when the call ends.

use std::sync::Arc;

use linchpin::{Context, NoArgs, Revision, Server, args};
use linchpin_hub_core::hub::{
    CallEvent, CallHandle, CallOptions, CallRequest, CallView, ServerReply, ServerRequestKind,
    ServerRequestView, ToolRef,
};
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{Actor, ErrorKind};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::background_task::within_timeout;
use crate::fixture::{BOB, Stage, local_user};

const REVISIONS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];

#[args]
struct Name {
    /// Name of the user
    name: String,
}

/// A hub with a server `asks`, whose tools send server requests and progress.
struct Asks {
    stage: Stage,
    /// Releases `steps`, which reports progress before and after each wait.
    next_step: Arc<Notify>,
    _running: JoinSet<()>,
}

impl Asks {
    async fn new(revision: Revision) -> Self {
        let next_step = Arc::new(Notify::new());
        let step = next_step.clone();
        let server = Server::new("asks", "1")
            .protocol_version(revision.as_str())
            .tool("greet", "Greets the user", |_: NoArgs, cx: Context| async move {
                let Name { name } = cx.elicit("Who are you?").await?;
                linchpin::Result::Ok(format!("Hello, {name}!"))
            })
            .tool("steps", "Reports progress", move |_: NoArgs, cx: Context| {
                let step = step.clone();
                async move {
                    for done in 1..=4 {
                        cx.progress((f64::from(done), 4.0, format!("step {done}")));
                        step.notified().await;
                    }
                    "done"
                }
            });
        let listening = server.http().bind("127.0.0.1:0").await.unwrap();
        let form = json!({
            "name": "Asks", "url": listening.url(), "retry_attempts": 0, "timeout_ms": 1_000,
        });
        let mut running = JoinSet::new();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        let stage = Stage::new().await;
        let registry = stage.hub.registry();
        registry.add_server(local_user(crate::fixture::ADA), form).await.unwrap();
        registry.sync_server(local_user(crate::fixture::ADA), "asks", None).await.unwrap();
        Asks { stage, next_step, _running: running }
    }

    async fn start(&self, actor: Actor, tool: &str, replies: &[ServerRequestKind]) -> CallHandle {
        let tool = ToolRef::Upstream { server: "asks".into(), tool: tool.into() };
        let request = CallRequest::new(tool, json!({}));
        let options = CallOptions { replies: replies.to_vec(), ..CallOptions::default() };
        within_timeout(self.stage.hub.calls().start(actor, request, options)).await.unwrap()
    }
}

/// Waits for the next server request of a call.
async fn opened(call: &mut CallHandle) -> ServerRequestView {
    loop {
        match within_timeout(call.next()).await.unwrap() {
            CallEvent::ServerRequestOpened(view) => return *view,
            CallEvent::Finished(finished) => panic!("the call has finished: {finished:?}"),
            _ => {}
        }
    }
}

async fn finished(call: CallHandle) -> CallView {
    within_timeout(call.finish()).await.unwrap()
}

fn ada() -> Actor {
    local_user(crate::fixture::ADA)
}

#[tokio::test]
async fn a_form_is_accepted_declined_or_cancelled_once() {
    for revision in REVISIONS {
        let asks = Asks::new(revision).await;
        for (reply, action, status) in [
            (ServerReply::Accept(Some(json!({ "name": "Ada" }))), "accepted", CallStatus::Success),
            (ServerReply::Decline, "declined", CallStatus::Error),
            (ServerReply::Cancel, "cancelled", CallStatus::Error),
        ] {
            let mut call = asks.start(ada(), "greet", &[ServerRequestKind::Form]).await;
            let view = opened(&mut call).await;
            assert_eq!((view.call, view.kind), (call.id(), ServerRequestKind::Form));
            assert_eq!(view.message.as_deref(), Some("Who are you?"));
            assert!(view.schema.unwrap()["properties"]["name"].is_object());
            let calls = asks.stage.hub.calls();
            assert_eq!(calls.server_requests_of(ada(), call.id()).await.unwrap().len(), 1);
            let wrong = ServerReply::Accept(Some(json!({ "name": 1 })));
            let error = call.reply(view.id, wrong).await.unwrap_err();
            assert_eq!(error.field(), Some("content"));
            assert!(error.message().contains("name"), "{error}");
            call.reply(view.id, reply.clone()).await.unwrap();
            let again = call.reply(view.id, reply).await.unwrap_err();
            assert_eq!(again.kind(), ErrorKind::NotFound);
            let id = call.id();
            let call = finished(call).await;
            assert_eq!(call.status, status, "{revision}: {:?}", call.error);
            let audit = asks.stage.audit_of_call(id).await;
            let expected = [
                "call.intent".to_owned(),
                "server_request.opened".to_owned(),
                format!("server_request.{action}"),
                format!("call.finished {}", status.name()),
            ];
            assert_eq!(audit, expected, "{revision}");
            if status == CallStatus::Success {
                assert_eq!(call.summary.as_deref(), Some("Hello, Ada!"));
            }
        }
        let entries = asks.stage.hub.audit().entries(ada(), 0, 500).await.unwrap();
        assert!(!serde_json::to_string(&entries).unwrap().contains("Ada"), "the audit has no content");
    }
}

#[tokio::test]
async fn without_replies_a_form_is_declined_at_once() {
    for revision in REVISIONS {
        let asks = Asks::new(revision).await;
        let call = asks.start(ada(), "greet", &[]).await;
        let id = call.id();
        let call = finished(call).await;
        assert_eq!(call.status, CallStatus::Error, "{revision}: {:?}", call.error);
        assert!(call.warning.unwrap().contains("does not reply to server requests"), "{revision}");
        let audit = asks.stage.audit_of_call(id).await;
        assert_eq!(audit, ["call.intent", "server_request.declined", "call.finished error"], "{revision}");
    }
}

#[tokio::test]
async fn an_open_server_request_ends_with_its_call() {
    for revision in REVISIONS {
        let asks = Asks::new(revision).await;
        let mut call = asks.start(ada(), "greet", &[ServerRequestKind::Form]).await;
        let view = opened(&mut call).await;
        let cancelled = within_timeout(call.cancel()).await.unwrap();
        assert_eq!(cancelled.status, CallStatus::Cancelled, "{revision}");
        assert!(asks.stage.hub.calls().server_requests(ada()).is_empty());
        let error = call.reply(view.id, ServerReply::Decline).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn a_server_request_is_visible_to_those_who_see_its_call() {
    let asks = Asks::new(Revision::LATEST).await;
    let mut call = asks.start(ada(), "greet", &[ServerRequestKind::Form]).await;
    let view = opened(&mut call).await;
    let agent = asks.stage.agent("Other", "auto", &[]).await;
    let calls = asks.stage.hub.calls();
    for other in [agent, local_user(BOB)] {
        assert!(calls.server_requests(other).is_empty());
        let error = calls.server_requests_of(other, call.id()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = calls.reply_to_server_request(other, view.id, ServerReply::Decline).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert_eq!(calls.server_requests(ada()).len(), 1);
    calls.reply_to_server_request(ada(), view.id, ServerReply::Decline).await.unwrap();
    finished(call).await;
}

#[tokio::test]
async fn progress_extends_the_timeout_of_a_call() {
    for revision in REVISIONS {
        let asks = Asks::new(revision).await;
        let mut watching = asks.stage.hub.events().subscribe(crate::fixture::ADA, None);
        let started = std::time::Instant::now();
        let call = asks.start(ada(), "steps", &[]).await;
        // Progress is published at most every 400 ms: four steps take longer than the timeout of one second.
        for step in 1..=4 {
            let event = loop {
                let event = within_timeout(watching.next()).await.unwrap();
                if event.kind == "call.progress" {
                    break event;
                }
            };
            assert_eq!(event.body["call"], call.id().to_string());
            assert_eq!(event.body["message"], format!("step {step}"));
            asks.next_step.notify_one();
        }
        let call = finished(call).await;
        assert!(started.elapsed().as_millis() > 1_000);
        assert_eq!(call.status, CallStatus::Success, "{revision}: {:?}", call.error);
    }
}
