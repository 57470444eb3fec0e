//! Cancellation of a call at another hub than the one that runs it.

use std::sync::Arc;

use linchpin_hub_core::Result;
use linchpin_hub_core::hub::{CallRequest, CallView, Hub, ToolRef};
use linchpin_hub_core::id::CallId;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{CallStatus, StoreChange};
use linchpin_hub_store::{Durability, Postgres};
use serde_json::json;
use tempfile::TempDir;
use test_postgres::server;

use crate::background_loop::RunningHub;
use crate::background_task::{BackgroundTask, within_timeout};
use crate::faulty_store::{FaultyStore, commits, notified};
use crate::fixture::{ADA, Upstream, another_hub, local_user, said};

/// Two running hubs on one database.
struct TwoHubs {
    one: Arc<Hub>,
    other: Arc<Hub>,
    /// Store of the first hub.
    store: Arc<FaultyStore>,
    upstream: Upstream,
    running: [RunningHub; 2],
    _place: TempDir,
}

impl TwoHubs {
    async fn new() -> Self {
        let (place, url) = (tempfile::tempdir().unwrap(), server().url(&server().create_database()));
        let join = || Postgres::join(&url, Durability::default(), Arc::new(SystemPlatform));
        let store = FaultyStore::new(Arc::new(join().await.unwrap()));
        let one = another_hub(&place, Arc::new(SystemPlatform), store.clone());
        let other = another_hub(&place, Arc::new(SystemPlatform), Arc::new(join().await.unwrap()));
        let upstream = Upstream::new().await;
        let form = json!({ "name": "Up", "url": upstream.url, "retry_attempts": 0 });
        one.registry().add_server(local_user(ADA), form).await.unwrap();
        one.registry().sync_server(local_user(ADA), "up", None).await.unwrap();
        let running = [&one, &other].map(RunningHub::new);
        TwoHubs { one, other, store, upstream, running, _place: place }
    }

    /// Starts a call at the first hub and returns it once it is running, with its waiting caller.
    async fn start_call(&self) -> (CallId, BackgroundTask<Result<CallView>>) {
        let mut watching = self.other.events().subscribe(ADA, None);
        let hub = self.one.clone();
        let wanted = CallRequest::new(ToolRef::Qualified("mcp_up__wait".to_owned()), json!({}));
        let answer =
            BackgroundTask::new(async move { hub.calls().call_tool(local_user(ADA), wanted, true).await });
        notified(&self.upstream.started).await;
        loop {
            let event = within_timeout(watching.next()).await.unwrap();
            if event.kind == "call" && event.body["status"] == "running" {
                return (event.body["call"].as_str().unwrap().parse().unwrap(), answer);
            }
        }
    }

    /// Asserts that both hubs and the audit agree on the status of a finished call, and returns it.
    async fn agreed_status(&self, id: CallId, answer: BackgroundTask<Result<CallView>>) -> CallStatus {
        let answer = answer.join().await.unwrap();
        for hub in [&self.one, &self.other] {
            assert_eq!(hub.calls().call(local_user(ADA), id).await.unwrap().status, answer.status);
        }
        let said = said(&self.one, id).await;
        let done: Vec<_> = said.iter().filter(|said| said.starts_with("call.finished")).collect();
        assert_eq!(done, [&format!("call.finished {}", answer.status.name())], "{said:?}");
        answer.status
    }

    async fn end(self) {
        for hub in self.running {
            hub.end().await;
        }
    }
}

#[tokio::test]
async fn whoever_gives_it_up_elsewhere_stops_it_here() {
    let two = TwoHubs::new().await;
    let (id, answer) = two.start_call().await;
    let cancelled = within_timeout(two.other.calls().cancel_call(local_user(ADA), id)).await.unwrap();
    assert_eq!(cancelled.status, CallStatus::Cancelled);
    notified(&two.upstream.cancelled).await;
    assert_eq!(two.agreed_status(id, answer).await, CallStatus::Cancelled);
    let all = ["call.intent", "call.cancelled", "call.finished cancelled"];
    assert_eq!((said(&two.other, id).await, two.upstream.ran()), (all.map(str::to_owned).to_vec(), 0));
    two.end().await;
}

#[tokio::test]
async fn what_is_over_but_not_yet_kept_stays_what_it_is() {
    let two = TwoHubs::new().await;
    let (id, answer) = two.start_call().await;
    let gate = two.store.hold(commits(|change| matches!(change, StoreChange::FinishCall { .. })));
    two.upstream.release.notify_one();
    gate.reached().await;
    let mut watching = two.one.events().subscribe(ADA, None);
    let other = two.other.clone();
    let cancels = BackgroundTask::new(async move { other.calls().cancel_call(local_user(ADA), id).await });
    while within_timeout(watching.next()).await.unwrap().kind != "cancel" {}
    gate.open();
    assert_eq!(cancels.join().await.unwrap().status, CallStatus::Success);
    assert_eq!(two.agreed_status(id, answer).await, CallStatus::Success);
    assert_eq!(two.upstream.ran(), 1);
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_same_moment_there_is_one_outcome() {
    let two = TwoHubs::new().await;
    for round in 0..30 {
        let (id, answer) = two.start_call().await;
        let other = two.other.clone();
        let cancels =
            BackgroundTask::new(async move { other.calls().cancel_call(local_user(ADA), id).await });
        if round % 2 == 0 {
            two.upstream.release.notify_one();
        }
        let cancelled = cancels.join().await;
        let status = two.agreed_status(id, answer).await;
        match cancelled {
            Ok(view) => assert_eq!(view.status, status, "{round}"),
            Err(error) => {
                assert_eq!((error.code(), status), ("call_finished", CallStatus::Success), "{round}");
            }
        }
    }
    two.end().await;
}
