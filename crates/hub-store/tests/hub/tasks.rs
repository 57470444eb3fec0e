//! Tools that servers run only as tasks: for the caller a call like any other.

use std::sync::Arc;
use std::time::Duration;

use linchpin::model::TaskSupport;
use linchpin::{Error, NoArgs, Revision, Server, Tool};
use linchpin_hub_core::hub::{CallRequest, CallView, ToolRef};
use linchpin_hub_core::store::CallStatus;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::fixture::{ADA, Stage, local_user};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Notifies when it is dropped.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A hub with a server `works` whose tools require tasks, in one revision.
struct TaskServer {
    stage: Stage,
    /// `stuck` has started, or was dropped.
    started: Arc<Notify>,
    dropped: Arc<Notify>,
    _running: JoinSet<()>,
}

impl TaskServer {
    async fn new(revision: Revision) -> Self {
        let (started, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (start, end) = (started.clone(), dropped.clone());
        let stuck = move |_: NoArgs| {
            let (start, end) = (start.clone(), end.clone());
            async move {
                let _end = OnDrop(end);
                start.notify_one();
                std::future::pending::<()>().await;
                "never"
            }
        };
        let required = |name: &str| Tool::new(name).task(TaskSupport::Required);
        let server = Server::new("works", "1")
            .protocol_version(revision.as_str())
            .task_poll_interval(Duration::from_millis(20))
            .add(required("report").handler(|_: NoArgs| async { "the report" }))
            .add(required("fail").handler(|_: NoArgs| async { Err::<String, _>(Error::tool("no paper")) }))
            .add(required("stuck").handler(stuck));
        let listening = server.http().bind("127.0.0.1:0").await.unwrap();
        let form = json!({ "name": "Works", "url": listening.url(), "retry_attempts": 0 });
        let mut running = JoinSet::new();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        let stage = Stage::new().await;
        stage.hub.registry().add_server(local_user(ADA), form).await.unwrap();
        stage.hub.registry().sync_server(local_user(ADA), "works", None).await.unwrap();
        TaskServer { stage, started, dropped, _running: running }
    }

    async fn call(&self, tool: &str, wait: bool) -> CallView {
        let tool = ToolRef::Upstream { server: "works".into(), tool: tool.into() };
        let call = self.stage.hub.calls().call_tool(local_user(ADA), CallRequest::new(tool, json!({})), wait);
        tokio::time::timeout(TEST_TIMEOUT, call).await.unwrap().unwrap()
    }

    async fn was_dropped(&self) {
        tokio::time::timeout(TEST_TIMEOUT, self.dropped.notified()).await.unwrap();
    }
}

#[tokio::test]
async fn a_tool_that_requires_a_task_is_called_as_one() {
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let works = TaskServer::new(revision).await;
        let call = works.call("report", true).await;
        assert_eq!(
            (call.status, call.summary.as_deref()),
            (CallStatus::Success, Some("the report")),
            "{revision}: {:?}",
            call.error
        );
        let call = works.call("fail", true).await;
        assert_eq!((call.status, call.error.as_deref()), (CallStatus::Error, Some("no paper")), "{revision}");
    }
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_task() {
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let works = TaskServer::new(revision).await;
        let call = works.call("stuck", false).await;
        tokio::time::timeout(TEST_TIMEOUT, works.started.notified()).await.unwrap();
        let call = works.stage.hub.calls().cancel_call(local_user(ADA), call.id).await.unwrap();
        assert_eq!(call.status, CallStatus::Cancelled, "{revision}");
        works.was_dropped().await;
    }
}

#[tokio::test]
async fn a_call_that_times_out_cancels_its_task() {
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let works = TaskServer::new(revision).await;
        // On a busy machine the tool may not start in time: then the call is repeated with more time.
        for seconds in [1, 4, 16] {
            let timeout = json!({ "timeout_ms": seconds * 1_000, "max_call_ms": seconds * 1_000 });
            works.stage.hub.registry().update_server(local_user(ADA), "works", timeout).await.unwrap();
            let call = works.call("stuck", true).await;
            assert_eq!(call.status, CallStatus::Unknown, "{revision}");
            let expected = format!("no response within {seconds}s");
            assert!(call.error.unwrap().starts_with(&expected), "{revision}");
            if tokio::time::timeout(Duration::ZERO, works.started.notified()).await.is_ok() {
                break;
            }
        }
        works.was_dropped().await;
    }
}
