//! Cancellation of a call at another hub than the one that runs it.

use std::sync::Arc;

use linchpin_hub_core::Result;
use linchpin_hub_core::hub::{CallView, Hub, Wanted, Which};
use linchpin_hub_core::id::CallId;
use linchpin_hub_core::platform::System;
use linchpin_hub_core::store::{Change, Status};
use linchpin_hub_store::{Durability, Postgres};
use serde_json::json;
use tempfile::TempDir;
use test_postgres::server;

use crate::background_loop::Runs;
use crate::background_task::{Aside, soon};
use crate::faulty_store::{Gated, change, heard};
use crate::fixture::{ADA, Upstream, another, person, said};

/// Two running hubs on one database.
struct Two {
    one: Arc<Hub>,
    other: Arc<Hub>,
    /// Store of the first hub.
    store: Arc<Gated>,
    upstream: Upstream,
    running: [Runs; 2],
    _place: TempDir,
}

impl Two {
    async fn new() -> Self {
        let (place, url) = (tempfile::tempdir().unwrap(), server().url(&server().database()));
        let join = || Postgres::join(&url, Durability::default(), Arc::new(System));
        let store = Gated::new(Arc::new(join().await.unwrap()));
        let one = another(&place, Arc::new(System), store.clone());
        let other = another(&place, Arc::new(System), Arc::new(join().await.unwrap()));
        let upstream = Upstream::new().await;
        let form = json!({ "name": "Up", "url": upstream.url, "retry_attempts": 0 });
        one.add_server(person(ADA), form).await.unwrap();
        one.sync_server(person(ADA), "up", None).await.unwrap();
        let running = [&one, &other].map(Runs::new);
        Two { one, other, store, upstream, running, _place: place }
    }

    /// Starts a call at the first hub and returns it once it is running, with its waiting caller.
    async fn wait(&self) -> (CallId, Aside<Result<CallView>>) {
        let mut watching = self.other.events().watch(ADA, None);
        let hub = self.one.clone();
        let wanted = Wanted { tool: Which::Local("mcp_up__wait".to_owned()), arguments: json!({}) };
        let answer = Aside::new(async move { hub.call_tool(person(ADA), wanted, true).await });
        heard(&self.upstream.has_begun).await;
        loop {
            let event = soon(watching.next()).await.unwrap();
            if event.kind == "call" && event.body["status"] == "running" {
                return (event.body["call"].as_str().unwrap().parse().unwrap(), answer);
            }
        }
    }

    /// Asserts that both hubs and the audit agree on the status of a finished call, and returns it.
    async fn agree(&self, id: CallId, answer: Aside<Result<CallView>>) -> Status {
        let answer = answer.done().await.unwrap();
        for hub in [&self.one, &self.other] {
            assert_eq!(hub.call(person(ADA), id).await.unwrap().status, answer.status);
        }
        let said = said(&self.one, id).await;
        let done: Vec<_> = said.iter().filter(|said| said.starts_with("call.done")).collect();
        assert_eq!(done, [&format!("call.done {}", answer.status.name())], "{said:?}");
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
    let two = Two::new().await;
    let (id, answer) = two.wait().await;
    let cancelled = soon(two.other.cancel_call(person(ADA), id)).await.unwrap();
    assert_eq!(cancelled.status, Status::Cancelled);
    heard(&two.upstream.given_up).await;
    assert_eq!(two.agree(id, answer).await, Status::Cancelled);
    let all = ["call.intent", "call.cancelled", "call.done cancelled"];
    assert_eq!((said(&two.other, id).await, two.upstream.ran()), (all.map(str::to_owned).to_vec(), 0));
    two.end().await;
}

#[tokio::test]
async fn what_is_over_but_not_yet_kept_stays_what_it_is() {
    let two = Two::new().await;
    let (id, answer) = two.wait().await;
    let gate = two.store.hold(change(|change| matches!(change, Change::Finish { .. })));
    two.upstream.go_on.notify_one();
    gate.came().await;
    let mut watching = two.one.events().watch(ADA, None);
    let other = two.other.clone();
    let cancels = Aside::new(async move { other.cancel_call(person(ADA), id).await });
    while soon(watching.next()).await.unwrap().kind != "cancel" {}
    gate.open();
    assert_eq!(cancels.done().await.unwrap().status, Status::Success);
    assert_eq!(two.agree(id, answer).await, Status::Success);
    assert_eq!(two.upstream.ran(), 1);
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_same_moment_there_is_one_outcome() {
    let two = Two::new().await;
    for round in 0..30 {
        let (id, answer) = two.wait().await;
        let other = two.other.clone();
        let cancels = Aside::new(async move { other.cancel_call(person(ADA), id).await });
        if round % 2 == 0 {
            two.upstream.go_on.notify_one();
        }
        let cancelled = cancels.done().await;
        let status = two.agree(id, answer).await;
        match cancelled {
            Ok(view) => assert_eq!(view.status, status, "{round}"),
            Err(error) => assert_eq!((error.code(), status), ("call_over", Status::Success), "{round}"),
        }
    }
    two.end().await;
}
