//! Tasks of the extension: the server decides, input requests and results are part of the task, and a task lives as
//! long as its store, beyond the request that started it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use linchpin::model::{TaskSupport, extension};
use linchpin::server::{Next, Request, StoreFuture, TaskRecord, TaskStore};
use linchpin::{Context, NoArgs, Service, Tool};
use serde_json::{Value, json};
use support::task_server::TaskControls;
use support::{Clock, Peer, STATELESS, failure, fault, handled, stateless_with, text};

fn able() -> Value {
    json!({"extensions": {(extension::TASKS): {}}, "elicitation": {"form": {}}})
}

async fn ask_as(capabilities: &Value, service: &Service, method: &str, params: Value) -> Value {
    let params = stateless_with(params, capabilities);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    handled(service, &message).await.unwrap()
}

async fn ask(service: &Service, method: &str, params: Value) -> Value {
    ask_as(&able(), service, method, params).await
}

async fn result(service: &Service, method: &str, params: Value) -> Value {
    let mut answer = ask(service, method, params).await;
    assert!(answer.get("result").is_some(), "{method}: {answer}");
    answer["result"].take()
}

/// Starts a task and returns its id.
async fn begin(service: &Service, tool: &str) -> Value {
    let task = result(service, "tools/call", json!({"name": tool})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    task["taskId"].clone()
}

/// Returns the task after all work that can run has run.
async fn settled(service: &Service, id: &Value) -> Value {
    support::paused::pass(Duration::from_millis(10)).await; // paused time: it advances when all tasks are idle
    result(service, "tasks/get", json!({"taskId": id})).await
}

async fn update(service: &Service, id: &Value, answers: Value) -> Value {
    ask(service, "tasks/update", json!({"taskId": id, "inputResponses": answers})).await
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_know_tasks_gets_none() {
    let service = TaskControls::new().server().build().unwrap();
    let unable = json!({"elicitation": {}});
    for tool in ["plain", "quick"] {
        let answer = ask_as(&unable, &service, "tools/call", json!({"name": tool})).await;
        assert_eq!(text(&answer["result"]), tool);
    }
    let params = json!({"taskId": "t", "inputResponses": {}, "name": "must"});
    for method in ["tools/call", "tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = ask_as(&unable, &service, method, params.clone()).await;
        assert_eq!(fault(&answer).0, -32021, "{method}");
        let required = json!({"requiredCapabilities": {"extensions": {(extension::TASKS): {}}}});
        assert_eq!(answer["error"]["data"], required, "{method}");
    }
    for method in ["tasks/list", "tasks/result"] {
        assert_eq!(fault(&ask(&service, method, json!({"taskId": "t"})).await).0, -32601, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_decides_what_becomes_a_task() {
    let works = TaskControls::new();
    let service = works.server().build().unwrap();
    for (params, said) in [
        (json!({"name": "plain"}), "plain"),
        (json!({"name": "plain", "task": {"ttl": 5}}), "plain"),
        (json!({"name": "quick"}), "quick"),
    ] {
        let answer = result(&service, "tools/call", params.clone()).await;
        assert_eq!((&answer["resultType"], text(&answer)), (&json!("complete"), said.to_owned()), "{params}");
    }
    let slow = begin(&service, "slow").await;
    assert_eq!(settled(&service, &slow).await["status"], "working");
    works.gate.add_permits(1);
    let task = settled(&service, &slow).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("complete"), &json!("completed")));
    assert_eq!(text(&task["result"]), "done at last");
    let must = begin(&service, "must").await;
    assert_eq!(text(&settled(&service, &must).await["result"]), "must");
}

#[tokio::test(start_paused = true)]
async fn only_a_protocol_error_is_a_failed_task() {
    let service = TaskControls::new().server().build().unwrap();
    let fails = begin(&service, "fails").await;
    let task = settled(&service, &fails).await;
    assert_eq!(task["status"], "completed");
    assert_eq!(failure(&task["result"]), "no luck");
    let breaks = begin(&service, "breaks").await;
    let task = settled(&service, &breaks).await;
    assert_eq!((&task["status"], &task["statusMessage"]), (&json!("failed"), &json!("broken")));
    assert_eq!(task["error"], json!({"code": -31_000, "message": "broken"}));
}

#[tokio::test(start_paused = true)]
async fn questions_stand_in_the_task_until_they_are_answered() {
    let service = TaskControls::new().server().build().unwrap();
    let id = begin(&service, "ask").await;
    let task = settled(&service, &id).await;
    assert_eq!(task["status"], "input_required");
    let asked = task["inputRequests"].as_object().unwrap().clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(
        settled(&service, &id).await["inputRequests"],
        task["inputRequests"],
        "until it gets a response"
    );
    let key = |message: &str| {
        let mut found = asked.iter().filter(|(_, question)| question["params"]["message"] == message);
        found.next().unwrap().0.clone()
    };
    let (who, age) = (key("Who are you?"), key("How old are you?"));
    let wrong = update(&service, &id, json!({(&*who): {"action": "perhaps"}})).await;
    assert_eq!(fault(&wrong).0, -32602, "{wrong}");
    let answers = json!({(&*age): {"action": "accept", "content": {"age": 36}}, "q99": {"action": "cancel"}});
    let answer = update(&service, &id, answers).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let task = settled(&service, &id).await;
    assert_eq!(task["status"], "input_required");
    assert_eq!(task["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [&who]);
    let again = json!({(&*age): {"action": "accept", "content": {"age": 99}}});
    update(&service, &id, again).await; // already has a response
    update(&service, &id, json!({(&*who): {"action": "accept", "content": {"name": "Ada"}}})).await;
    let task = settled(&service, &id).await;
    let (third, question) = task["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["params"]["message"], "Who is your friend?");
    assert!(*third != who && *third != age, "no key is used twice");
    update(&service, &id, json!({(&**third): {"action": "accept", "content": {"name": "Bob"}}})).await;
    assert_eq!(text(&settled(&service, &id).await["result"]), "Ada is 36 and knows Bob");
    let late = update(&service, &id, json!({(&*who): {"action": "cancel"}})).await;
    assert_eq!(late["result"]["resultType"], "complete", "a finished task ignores input: {late}");
    let unknown = update(&service, &json!("t"), json!({})).await;
    assert_eq!(fault(&unknown).0, -32602);
}

#[tokio::test(start_paused = true)]
async fn a_task_can_be_cancelled_and_that_is_only_acknowledged() {
    let works = TaskControls::new();
    let service = works.server().build().unwrap();
    let id = begin(&service, "must_slow").await;
    settled(&service, &id).await;
    assert_eq!(works.alive(), 1);
    for _ in 0..2 {
        result(&service, "tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(settled(&service, &id).await["status"], "cancelled");
        assert_eq!(works.alive(), 0);
    }
    assert_eq!(fault(&ask(&service, "tasks/cancel", json!({"taskId": "t"})).await).0, -32602);
}

#[tokio::test(start_paused = true)]
async fn a_task_belongs_to_its_principal() {
    let works = TaskControls::new();
    let service = works.server().build().unwrap();
    let (ada, eve) = (service.for_principal("ada"), service.for_principal("eve"));
    for (tool, status) in [("must_slow", "working"), ("must", "completed")] {
        let id = begin(&ada, tool).await;
        assert_eq!(settled(&ada, &id).await["status"], status);
        for stranger in [&eve, &service] {
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let answer = ask(stranger, method, json!({"taskId": id, "inputResponses": {}})).await;
                assert_eq!(fault(&answer).0, -32602, "{method}");
            }
        }
        assert_eq!(settled(&ada, &id).await["status"], status);
    }
}

/// A store that outlives the servers, and their shared clock.
#[derive(Clone, Default)]
struct Durable {
    tasks: Arc<Mutex<BTreeMap<String, TaskRecord>>>,
    now: Arc<AtomicU64>,
}

impl TaskStore for Durable {
    fn save(&self, task: TaskRecord) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            support::paused::pass(Duration::from_millis(1)).await; // as slow as a disk
            self.tasks.lock().unwrap().insert(task.id.clone(), task);
            Ok(())
        })
    }

    fn find<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<TaskRecord>> {
        Box::pin(async move { Ok(self.tasks.lock().unwrap().get(id).cloned()) })
    }

    fn list<'a>(
        &'a self,
        _: Option<&'a str>,
        _: &'a str,
        _: Option<&'a str>,
        _: usize,
    ) -> StoreFuture<'a, Vec<TaskRecord>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn remove<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.tasks.lock().unwrap().remove(id);
        Box::pin(async { Ok(()) })
    }
}

impl Durable {
    fn service(&self, works: &TaskControls) -> Service {
        let now = self.now.clone();
        let clock = move || SystemTime::UNIX_EPOCH + Duration::from_secs(now.load(Ordering::SeqCst));
        works.server().task_store(self.clone()).clock(clock).build().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_outlive_the_server_if_their_store_does() {
    let (store, works) = (Durable::default(), TaskControls::new());
    let before = store.service(&works);
    let (done, lost) = (begin(&before, "must").await, begin(&before, "must_slow").await);
    let cancelled = begin(&before, "must_slow").await;
    result(&before, "tasks/cancel", json!({"taskId": cancelled})).await;
    assert_eq!(settled(&before, &done).await["status"], "completed");
    let after = store.service(&works);
    assert_eq!(text(&settled(&after, &done).await["result"]), "must");
    assert_eq!(settled(&after, &cancelled).await["status"], "cancelled");
    let running = result(&after, "tasks/get", json!({"taskId": lost})).await;
    assert_eq!(running["status"], "working", "it may run on another instance");
    store.now.fetch_add(61, Ordering::SeqCst);
    let task = settled(&after, &lost).await;
    assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!(-32603)));
    assert!(task["statusMessage"].as_str().unwrap().contains("restarted"), "{task}");
    store.now.fetch_add(60 * 60 + 1, Ordering::SeqCst);
    let gone = ask(&after, "tasks/get", json!({"taskId": done})).await;
    assert_eq!(fault(&gone).0, -32602, "{gone}");
    assert!(!store.tasks.lock().unwrap().contains_key(done.as_str().unwrap()), "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_takes_longer_than_it_is_kept_ends() {
    let (store, works) = (Durable::default(), TaskControls::new());
    let service = store.service(&works);
    let id = begin(&service, "must_slow").await;
    support::paused::pass(Duration::from_secs(60 * 60 + 1)).await;
    assert_eq!(works.alive(), 0, "the task has stopped");
    let task = settled(&service, &id).await;
    assert_eq!(task["status"], "cancelled");
    assert!(task["statusMessage"].as_str().unwrap().contains("has expired"), "{task}");
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_keeps_for_a_call_is_kept_for_its_task() {
    let layer = |request: Request, next: Next| async move {
        request.context().set(String::from("from the layer"));
        next.run(request).await
    };
    let tool = |_: NoArgs, cx: Context| async move {
        cx.get::<String>().map(|text| (*text).clone()).unwrap_or_default()
    };
    let server = TaskControls::new().server().layer(layer);
    let service = server.add(Tool::new("kept").task(TaskSupport::Required).handler(tool)).build().unwrap();
    let id = begin(&service, "kept").await;
    assert_eq!(text(&settled(&service, &id).await["result"]), "from the layer");
}

/// Opens a stream for tasks and returns the acknowledged ones.
fn listen(peer: &mut Peer, ids: &[Value]) -> Value {
    peer.send("subscriptions/listen", json!({"notifications": {"taskIds": ids}}));
    let acknowledged = peer.read();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    acknowledged["params"]["notifications"]["taskIds"].clone()
}

#[test]
fn those_who_listen_are_told_on_whatever_connection() {
    let works = TaskControls::new();
    let service = works.server().build().unwrap();
    let open = |service: &Service| Peer::open_with(STATELESS, service.clone(), Clock::Real, &able());
    let mut unable = Peer::open_with(STATELESS, service.clone(), Clock::Real, &json!({}));
    let (code, _) = unable.error("subscriptions/listen", json!({"notifications": {"taskIds": ["t"]}}));
    assert_eq!(code, -32021);
    unable.close();
    let (ada, eve) = (service.for_principal("ada"), service.for_principal("eve"));
    let (mut here, mut there, mut stranger) = (open(&ada), open(&ada), open(&eve));
    let id = here.result("tools/call", json!({"name": "ask"}))["taskId"].clone();
    assert_eq!(listen(&mut stranger, std::slice::from_ref(&id)), json!([]), "another's task");
    assert_eq!(listen(&mut there, &[json!("unknown"), id.clone()]), json!([id]));
    let answer = |here: &mut Peer, there: &mut Peer, key: &str, content: Value| {
        let answers = json!({key: {"action": "accept", "content": content}});
        loop {
            let task = here.result("tasks/get", json!({"taskId": id}));
            if task["inputRequests"].get(key).is_some() {
                break;
            }
        }
        here.result("tasks/update", json!({"taskId": id, "inputResponses": answers}));
        loop {
            let notice = there.read();
            assert_eq!(notice["method"], "notifications/tasks", "{notice}");
            assert_eq!(notice["params"]["taskId"], id);
            let told = &notice["params"];
            // The `input_required` notification may arrive after the poll that showed it, with `working` in between.
            if told["inputRequests"].get(key).is_none() && told["status"] != "working" {
                return told.clone();
            }
        }
    };
    let keys = |told: &Value| told["inputRequests"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&answer(&mut here, &mut there, "q1", json!({"name": "Ada"}))), ["q2"]);
    assert_eq!(keys(&answer(&mut here, &mut there, "q2", json!({"age": 36}))), ["q3"]);
    let told = answer(&mut here, &mut there, "q3", json!({"name": "Bob"}));
    assert_eq!(
        (&told["status"], text(&told["result"])),
        (&json!("completed"), "Ada is 36 and knows Bob".into())
    );
    let (rest, _) = stranger.end();
    assert_eq!(rest.len(), 1, "nothing but the end of the stream: {rest:?}");
    drop((here.end(), there.end()));
}

#[test]
fn a_task_sends_no_progress() {
    let works = TaskControls::new();
    let mut peer = Peer::open_with(STATELESS, works.server().build().unwrap(), Clock::Real, &able());
    let params = json!({"name": "must_slow", "_meta": {"progressToken": "p"}});
    let id = peer.result("tools/call", params)["taskId"].clone();
    works.gate.add_permits(1);
    while peer.result("tasks/get", json!({"taskId": id}))["status"] != "completed" {} // nothing else is sent
    peer.close();
}
