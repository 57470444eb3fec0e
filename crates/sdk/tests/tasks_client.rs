//! Tasks from the view of a client: calls that become tasks are polled, get input and are cancelled. Every message
//! of both sides is validated against its schema.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::Duration;

use linchpin::client::{RevisionCache, StartedCall, TaskHandle};
use linchpin::model::{ElicitParams, ElicitResult, TaskStatus};
use linchpin::{Client, ClientBuilder, ClientError, Result, Revision, Server, Service};
use linchpin_jsonrpc::CallError;
use serde_json::json;
use support::task_server::TaskControls;
use support::{STATELESS, SchemaTap, of};

const CORE: Revision = Revision::ALL[3];
const MINUTE: Duration = Duration::from_mins(1);

/// Builds a service with a short poll interval, for real time.
fn build(works: &TaskControls) -> Service {
    works.server().task_poll_interval(Duration::from_millis(1)).build().unwrap()
}

fn patient(works: &TaskControls) -> Service {
    works.server().build().unwrap()
}

async fn answer(ask: ElicitParams) -> Result<ElicitResult> {
    Ok(ElicitResult::accept(match &*ask.message {
        "Who are you?" => json!({"name": "Ada"}),
        "How old are you?" => json!({"age": 36}),
        _ => json!({"name": "Bob"}),
    }))
}

async fn connect(client: ClientBuilder) -> Client {
    client.on_elicit(answer).connect().await.unwrap()
}

/// A client in the same runtime, so that paused time advances for both.
async fn in_memory(service: &Service, revision: Revision) -> Client {
    connect(service.client().revision_cache(RevisionCache::new()).revisions([revision])).await
}

#[tokio::test]
async fn a_call_that_becomes_a_task_is_a_call_like_any_other() {
    for revision in [CORE, STATELESS] {
        let works = TaskControls::new();
        works.gate.add_permits(1);
        let tap = SchemaTap::new(&build(&works));
        let client = connect(tap.client(revision)).await;
        for (tool, said) in [
            ("must", "must"),
            ("ask", "Ada is 36 and knows Bob"),
            ("must_slow", "done at last"),
            ("quick", "quick"),
        ] {
            let output = client.call(tool, ()).as_task(MINUTE).await.unwrap();
            assert_eq!(output.to_text(), said, "{revision}");
        }
        let failed = client.call("fails", ()).as_task(MINUTE).await.unwrap();
        assert_eq!((failed.is_error, failed.to_text()), (Some(true), "no luck".into()), "{revision}");
        let error = client.call("breaks", ()).as_task(MINUTE).await.unwrap_err();
        let ClientError::Call(CallError::Rejected(error)) = error else { panic!("{error}") };
        assert_eq!((error.code, &*error.message), (-31_000, "broken"), "{revision}");
        let (sent, received) = tap.messages();
        assert!(
            of(&sent, "tools/call")
                .iter()
                .all(|call| call["params"].get("task").is_some() == (revision == CORE))
        );
        if revision == CORE {
            assert_eq!(of(&received, "elicitation/create").len(), 3);
            assert_eq!(of(&sent, "tasks/result").len(), 6);
        } else {
            assert_eq!(of(&sent, "tasks/update").len(), 2, "two input requests");
        }
    }
}

#[tokio::test]
async fn a_wish_for_a_task_is_sent_only_to_those_who_know_them() {
    for revision in Revision::ALL {
        let service = Server::new("none", "1").tool("plain", "", || async { "plain" }).build().unwrap();
        let tap = SchemaTap::new(&service);
        let client = connect(tap.client(revision)).await;
        assert_eq!(client.call("plain", ()).as_task(MINUTE).await.unwrap().to_text(), "plain");
        let (sent, _) = tap.messages();
        assert!(of(&sent, "tools/call")[0]["params"].get("task").is_none(), "{revision}");
    }
}

#[tokio::test]
async fn a_client_may_want_no_tasks() {
    let tap = SchemaTap::new(&build(&TaskControls::new()));
    let client = connect(tap.client(STATELESS).without_tasks()).await;
    assert_eq!(client.call("quick", ()).await.unwrap().to_text(), "quick");
    let error = client.call("must", ()).await.unwrap_err();
    assert!(matches!(error, ClientError::Call(CallError::Rejected(error)) if error.code == -32021));
    tap.messages();
}

/// Starts a call that must become a task.
async fn start(client: &Client, tool: &str) -> TaskHandle {
    match client.call(tool, ()).as_task(MINUTE * 60).start().await.unwrap() {
        StartedCall::Task(task) => *task,
        StartedCall::Done(output) => panic!("{output:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_can_be_started_and_come_back_to_from_elsewhere() {
    for revision in [CORE, STATELESS] {
        let works = TaskControls::new();
        let service = patient(&works);
        let (here, there) = (in_memory(&service, revision).await, in_memory(&service, revision).await);
        let StartedCall::Done(output) = here.call("quick", ()).start().await.unwrap() else {
            panic!("{revision}")
        };
        assert_eq!(output.to_text(), "quick");
        let task = start(&here, "must_slow").await;
        assert_eq!(task.get().await.unwrap().task.status, TaskStatus::Working);
        let id = task.id().to_owned();
        drop((task, here));
        let task = there.task(&*id);
        assert_eq!(task.get().await.unwrap().task.status, TaskStatus::Working, "{revision}");
        let (output, ()) = tokio::join!(task.wait(), async {
            support::paused::pass(MINUTE).await;
            works.gate.add_permits(1);
        });
        assert_eq!(output.unwrap().to_text(), "done at last", "{revision}");
        assert_eq!(task.get().await.unwrap().task.status, TaskStatus::Completed);
        let unknown = there.task("0".repeat(32)).get().await.unwrap_err();
        assert!(matches!(unknown, ClientError::Call(CallError::Rejected(error)) if error.code == -32602));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_on_request() {
    for revision in [CORE, STATELESS] {
        let works = TaskControls::new();
        let client = in_memory(&patient(&works), revision).await;
        let task = start(&client, "must_slow").await;
        let (ended, cancelled) = tokio::join!(task.wait(), async {
            support::paused::pass(MINUTE).await;
            assert_eq!(works.alive(), 1);
            task.cancel().await
        });
        let said = cancelled.unwrap().map(|task| task.status);
        assert_eq!(said, (revision == CORE).then_some(TaskStatus::Cancelled), "{revision}");
        let error = ended.unwrap_err();
        assert!(matches!(&error, ClientError::Task { status: TaskStatus::Cancelled, .. }), "{error}");
        support::paused::pass(Duration::from_millis(1)).await; // the work finishes at the next poll
        assert_eq!(works.alive(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_it_so_it_is_cancelled() {
    for revision in [CORE, STATELESS] {
        for tool in ["must_slow", "slow"] {
            let works = TaskControls::new();
            let client = in_memory(&patient(&works), revision).await;
            let call = client.call(tool, ()).as_task(MINUTE * 60).into_future();
            assert!(tokio::time::timeout(MINUTE, call).await.is_err());
            support::paused::pass(Duration::from_millis(1)).await;
            assert_eq!(works.alive(), 0, "{tool} in {revision}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_as_long_as_its_user() {
    for revision in [CORE, STATELESS] {
        let service = patient(&TaskControls::new());
        let client = service.client().revision_cache(RevisionCache::new()).revisions([revision]).on_elicit(
            |ask| async {
                support::paused::pass(MINUTE * 9).await;
                answer(ask).await
            },
        );
        let client = client.connect().await.unwrap();
        let output = client.call("ask", ()).as_task(MINUTE * 60).await.unwrap();
        assert_eq!(output.to_text(), "Ada is 36 and knows Bob", "{revision}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_when_the_time_is_over_that_its_client_wished_for() {
    let works = TaskControls::new();
    let client = in_memory(&patient(&works), CORE).await;
    let error = client.call("must_slow", ()).as_task(MINUTE).await.unwrap_err();
    let ClientError::Task { status: TaskStatus::Cancelled, message, .. } = error else { panic!("{error}") };
    assert_eq!(message.as_deref(), Some("the lifetime of the task has expired"));
    assert_eq!(works.alive(), 0);
}
