//! Handlers of single calls: each server request and log message reaches the call that it belongs to.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::{CallLog, ClientResult, RevisionCache, ServerRequest};
use linchpin::model::{CreateMessageResult, ElicitResult, ListRootsResult, Root};
use linchpin::testing::{Reaction, Script, matrix};
use linchpin::{
    Client, ClientBuilder, ClientError, Context, LogLevel, NoArgs, Result, Revision, Server, Service, Tool,
    args,
};
use linchpin_jsonrpc::CallError;
use serde_json::{Value, json};
use support::live_counter::LiveCounter;
use support::task_server::TaskControls;
use support::{STATELESS, SchemaTap};
use tokio::sync::{Barrier, Notify};

/// First revision with elicitation.
const FORMS: Revision = Revision::ALL[2];
/// Revision with core tasks.
const CORE: Revision = Revision::ALL[3];
const SESSION: Revision = Revision::LATEST_SESSION;
const MINUTE: Duration = Duration::from_mins(1);

#[args]
struct Name {
    name: String,
}

#[args]
struct Topic {
    topic: String,
}

async fn ask(Topic { topic }: Topic, cx: Context) -> Result<String> {
    Ok(format!("{topic}: {}", cx.elicit::<Name>(topic.as_str()).await?.name))
}

async fn think(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("6 * 7?").await?.to_text())
}

async fn folders(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.roots().await?[0].uri.clone())
}

fn curious() -> Server {
    Server::new("curious", "1")
        .add(Tool::new("ask").read_only().handler(ask))
        .add(Tool::new("think").read_only().handler(think))
        .add(Tool::new("folders").read_only().handler(folders))
}

fn service() -> Service {
    curious().build().unwrap()
}

/// Replies to every server request; names and roots contain `name`.
fn reply(request: &ServerRequest, name: &str) -> ClientResult {
    match request {
        ServerRequest::Elicit(_) => ClientResult::Elicit(ElicitResult::accept(json!({ "name": name }))),
        ServerRequest::Sample(_) => ClientResult::Sample(Box::new(CreateMessageResult::text("model", name))),
        ServerRequest::Roots => {
            let roots = vec![Root { uri: format!("file:///{name}"), name: None, meta: None }];
            ClientResult::Roots(ListRootsResult { roots, meta: None })
        }
    }
}

fn message(request: &ServerRequest) -> String {
    let ServerRequest::Elicit(params) = request else { panic!("{request:?}") };
    params.message.clone()
}

#[test]
fn a_call_handles_its_own_requests_and_the_client_all_others() {
    matrix(&service(), |case| async move {
        let client = case
            .client()
            .forward_server_requests()
            .on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "name": "the client" }))) });
        let client = client.connect().await?;
        assert_eq!(client.attributes_requests(), case.revision() == STATELESS);
        for (tool, expected) in [("think", "Ada"), ("folders", "file:///Ada")] {
            let call =
                client.call(tool, ()).on_server_request(|request| async move { Ok(reply(&request, "Ada")) });
            assert_eq!(call.await?.to_text(), expected);
        }
        if case.revision() >= FORMS {
            let call = client.call("ask", json!({ "topic": "one" }));
            let call = call.on_server_request(|request| async move { Ok(reply(&request, "Ada")) });
            assert_eq!(call.await?.to_text(), "one: Ada");
            assert_eq!(client.call("ask", json!({ "topic": "two" })).await?.to_text(), "two: the client");
        }
        client.close().await;
        Ok::<_, ClientError>(())
    });
}

#[test]
fn a_call_can_decline() {
    matrix(&service(), |case| async move {
        let client = case.client().forward_server_requests().connect().await?;
        if case.revision() >= FORMS {
            let call = client.call("ask", json!({ "topic": "one" }));
            let declined = call.on_server_request(|request| async move { request.decline() }).await?;
            assert!(declined.to_text().contains("declined"), "{declined:?}");
        }
        let call = client.call("think", ()).on_server_request(|request| async move { request.cancel() });
        let text = call.await.map_or_else(|error| error.to_string(), |output| output.to_text());
        assert!(text.contains("rejected"), "{text}");
        let call =
            client.call("think", ()).on_server_request(|_| async { Ok(reply(&ServerRequest::Roots, "x")) });
        let text = call.await.map_or_else(|error| error.to_string(), |output| output.to_text());
        assert!(text.contains("returned a result of roots/list"), "{text}");
        client.close().await;
        Ok::<_, ClientError>(())
    });
}

/// Calls `ask` once per topic at the same time. No request is answered before all have arrived.
async fn ask_concurrently(client: &Client, topics: &[&'static str]) {
    let all_open = Arc::new(Barrier::new(topics.len()));
    let mut calls = tokio::task::JoinSet::new();
    for &topic in topics {
        let all_open = all_open.clone();
        let call = client.call("ask", json!({ "topic": topic })).on_server_request(move |request| {
            let all_open = all_open.clone();
            async move {
                all_open.wait().await;
                assert_eq!(message(&request), topic);
                Ok(reply(&request, &topic.to_uppercase()))
            }
        });
        calls.spawn(async move {
            assert_eq!(call.await.unwrap().to_text(), format!("{topic}: {}", topic.to_uppercase()));
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
}

#[tokio::test]
async fn concurrent_calls_each_receive_their_own_request() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        let tap = SchemaTap::new(&service());
        let client = tap.client(revision).forward_server_requests().connect().await.unwrap();
        assert!(!client.is_asking_tool("ask"));
        ask_concurrently(&client, &["one", "two"]).await;
        ask_concurrently(&client, &["one", "two", "three"]).await;
        // The same tool was the only possible sender.
        assert_eq!(client.is_asking_tool("ask"), revision != STATELESS);
        tap.messages();
    }
}

#[tokio::test]
async fn a_request_with_a_related_task_reaches_the_call_of_that_task() {
    let works = TaskControls::new();
    let tap = SchemaTap::new(&works.server().task_poll_interval(Duration::from_millis(1)).build().unwrap());
    let client = tap.client(CORE).forward_server_requests().connect().await.unwrap();
    let call = |name: &'static str| {
        let reply = move |request: ServerRequest| async move {
            let content = match message(&request).as_str() {
                "How old are you?" => json!({ "age": name.len() }),
                _ => json!({ "name": name }),
            };
            Ok(ClientResult::Elicit(ElicitResult::accept(content)))
        };
        client.call("ask", ()).as_task(MINUTE).on_server_request(reply).into_future()
    };
    let (ada, grace) = tokio::join!(call("Ada"), call("Grace"));
    assert_eq!(ada.unwrap().to_text(), "Ada is 3 and knows Ada");
    assert_eq!(grace.unwrap().to_text(), "Grace is 5 and knows Grace");
    assert!(!client.is_asking_tool("ask"), "its requests name their task");
    tap.messages();
}

/// Request of a script for a name.
fn elicitation(id: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let params = json!({ "message": id, "requestedSchema": schema });
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params })
}

async fn connect(script: &Script) -> Client {
    scripted(script).forward_server_requests().connect().await.unwrap()
}

fn scripted(script: &Script) -> ClientBuilder {
    Client::over(script.clone()).revision_cache(RevisionCache::new())
}

fn done() -> Value {
    json!({ "content": [] })
}

#[tokio::test]
async fn a_request_reaches_the_call_of_a_tool_that_is_known_to_ask() {
    // `ask` sends a request and finishes after the reply; `quiet` finishes with `ask`.
    let (calls, quiet) = (Arc::new(Mutex::new(Value::Null)), Arc::new(Mutex::new(Value::Null)));
    let (asking, waiting) = (calls.clone(), quiet.clone());
    let script = Script::with_revision(SESSION)
        .on("tools/call", move |call| {
            if call["params"]["name"] == "quiet" {
                *waiting.lock().unwrap() = call["id"].clone();
                return Reaction::new();
            }
            *asking.lock().unwrap() = call["id"].clone();
            Reaction::new().message(&elicitation(&format!("request {}", call["id"])))
        })
        .on_response(move |_| {
            let result = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "result": done() });
            let ids = [calls.lock().unwrap().take(), quiet.lock().unwrap().take()];
            ids.into_iter()
                .filter(|id| !id.is_null())
                .fold(Reaction::new(), |all, id| all.message(&result(id)))
        });
    let client = connect(&script).await;
    let count = Arc::new(AtomicUsize::new(0));
    let ask = || {
        let count = count.clone();
        client.call("ask", ()).on_server_request(move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(reply(&request, "Ada")) }
        })
    };
    ask().await.unwrap();
    assert!(client.is_asking_tool("ask") && !client.is_asking_tool("quiet"));
    let quiet =
        client.call("quiet", ()).on_server_request(|_| async { panic!("a request of the other call") });
    let both = async {
        script.wait_for(|message| message["params"]["name"] == "quiet").await;
        ask().await
    };
    let (quiet, asked) = tokio::join!(quiet.into_future(), both);
    quiet.unwrap();
    asked.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn no_call_gets_a_second_request_while_another_has_none() {
    // All requests arrive with the second call. The results follow when all are open.
    let ids: Arc<Mutex<Vec<Value>>> = Arc::default();
    let started = ids.clone();
    let script = Script::with_revision(SESSION)
        .on("tools/call", move |call| {
            let mut ids = started.lock().unwrap();
            ids.push(call["id"].clone());
            let requests: &[&str] = if ids.len() == 2 { &["a", "b", "c"] } else { &[] };
            requests.iter().fold(Reaction::new(), |all, id| all.message(&elicitation(id)))
        })
        .on("notifications/all_open", move |_| {
            let result = |id: &Value| json!({ "jsonrpc": "2.0", "id": id, "result": done() });
            ids.lock().unwrap().iter().fold(Reaction::new(), |all, id| all.message(&result(id)))
        });
    let client = connect(&script).await;
    let seen: Arc<Mutex<Vec<(&str, String)>>> = Arc::default();
    let call = |name: &'static str| {
        let (seen, sender) = (seen.clone(), client.clone());
        let call = client.call(name, ()).on_server_request(move |request| {
            let mut seen = seen.lock().unwrap();
            seen.push((name, message(&request)));
            if seen.len() == 3 {
                sender.notify("notifications/all_open", &json!({}));
            }
            std::future::pending()
        });
        call.into_future()
    };
    let (one, two) = tokio::join!(call("one"), call("two"));
    one.unwrap();
    two.unwrap();
    for id in ["a", "b", "c"] {
        let reply = script.wait_for(|message| message["id"] == id && message.get("error").is_some()).await;
        assert_eq!(reply["error"]["message"], "the call that this request belongs to has ended");
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by(|(_, first), (_, second)| first.cmp(second));
    assert_eq!(seen, [("one", "a".to_owned()), ("two", "b".to_owned()), ("one", "c".to_owned())]);
}

#[tokio::test]
async fn a_dropped_call_ends_its_open_request() {
    let script =
        Script::with_revision(SESSION).on("tools/call", |_| Reaction::new().message(&elicitation("open")));
    let client = connect(&script).await;
    let (opened, alive) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (open, count) = (opened.clone(), alive.clone());
    let call = client.call("ask", ()).on_server_request(move |_| {
        let (alive, open) = (LiveCounter::new(&count), open.clone());
        async move {
            open.notify_one();
            std::future::pending::<()>().await;
            drop(alive);
            unreachable!()
        }
    });
    tokio::select! {
        result = call.into_future() => panic!("{result:?}"),
        () = opened.notified() => assert_eq!(alive.load(Ordering::SeqCst), 1),
    }
    let refused = script.wait_for(|message| message["id"] == "open" && message.get("method").is_none()).await;
    assert_eq!(refused["error"]["message"], "the call that this request belongs to has ended");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    script.wait_for(|message| message["method"] == "notifications/cancelled").await;
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_of_its_request() {
    let id = Arc::new(Mutex::new(Value::Null));
    let called = id.clone();
    let script = Script::with_revision(SESSION)
        .on("tools/call", move |call| {
            *called.lock().unwrap() = call["id"].clone();
            Reaction::new().message(&elicitation("open"))
        })
        .on_response(move |_| {
            let id = id.lock().unwrap().take();
            Reaction::new().message(&json!({ "jsonrpc": "2.0", "id": id, "result": done() }))
        });
    let client = connect(&script).await;
    let call = client.call("ask", ());
    let call = call.on_server_request(|request| -> std::future::Ready<_> { panic!("{}", message(&request)) });
    call.await.unwrap();
    let refused = script.wait_for(|message| message["id"] == "open" && message.get("error").is_some()).await;
    assert_eq!(refused["error"]["code"], -32603);
}

#[tokio::test]
async fn a_request_without_a_call_is_an_error_that_says_why() {
    let list = |_: &Value| Reaction::new().message(&elicitation("stray")).result(json!({ "tools": [] }));
    let script = Script::with_revision(SESSION).on("tools/list", list);
    let client = connect(&script).await;
    client.tools().all().await.unwrap();
    let refused =
        script.wait_for(|message| message["id"] == "stray" && message.get("method").is_none()).await;
    let expected = "elicitation/create belongs to no call in flight that handles it";
    assert_eq!(refused["error"]["message"], expected);
    // A capability that is not declared is not used, either.
    let undeclared = Script::with_revision(SESSION).on("tools/list", list);
    let client = scripted(&undeclared)
        .on_server_request(linchpin::model::ClientCapabilities::default(), |_| async { unreachable!() });
    let client = client.connect().await.unwrap();
    client.tools().all().await.unwrap();
    let refused =
        undeclared.wait_for(|message| message["id"] == "stray" && message.get("method").is_none()).await;
    assert_eq!(refused["error"]["message"], "this client does not support elicitation/create");
}

#[tokio::test]
async fn log_messages_reach_the_calls_that_may_have_caused_them() {
    for revision in Revision::ALL {
        let speak = |Topic { topic }: Topic, cx: Context| async move {
            cx.log(LogLevel::Debug, "quiet");
            cx.log(LogLevel::Warning, topic);
            "done"
        };
        let tap = SchemaTap::new(&curious().tool("speak", "", speak).build().unwrap());
        let client = tap.client(revision).connect().await.unwrap();
        let logs: Arc<Mutex<Vec<CallLog>>> = Arc::default();
        let seen = logs.clone();
        let call = client.call("speak", json!({ "topic": "loud" }));
        call.log(LogLevel::Warning, move |log| seen.lock().unwrap().push(log)).await.unwrap();
        client.call("speak", json!({ "topic": "without a callback" })).await.unwrap();
        let logs = logs.lock().unwrap();
        let texts: Vec<_> = logs.iter().map(|log| (log.params.data.as_str(), log.is_attributed)).collect();
        assert_eq!(texts, [(Some("loud"), false)], "{revision}");
        tap.messages();
    }
}

fn task(status: &str) -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!({ "taskId": "t", "status": status, "createdAt": at, "lastUpdatedAt": at, "ttl": null, "pollInterval": 20 })
}

/// A script whose calls become a task.
fn task_script(status: &'static str) -> Script {
    Script::with_revision(CORE)
        .on("initialize", |_| {
            let tasks = json!({ "requests": { "tools": { "call": {} } } });
            json!({
                "protocolVersion": CORE.as_str(), "capabilities": { "tools": {}, "tasks": tasks },
                "serverInfo": { "name": "script", "version": "1" },
            })
        })
        .on("tools/call", |call| {
            let token = &call["params"]["_meta"]["progressToken"];
            let progress = json!({ "progressToken": token, "progress": 0.5 });
            Reaction::new()
                .result(json!({ "task": task("working") }))
                .notify("notifications/progress", &progress)
        })
        .on("tasks/get", move |_| task(status))
        .on("tasks/result", |_| done())
        .on("tasks/cancel", |_| task("cancelled"))
}

#[tokio::test]
async fn progress_continues_after_a_call_has_become_a_task() {
    let client = connect(&task_script("completed")).await;
    let steps: Arc<Mutex<Vec<f64>>> = Arc::default();
    let seen = steps.clone();
    let call = client.call("slow", ()).as_task(MINUTE);
    call.progress(move |progress| seen.lock().unwrap().push(progress.done())).await.unwrap();
    assert_eq!(*steps.lock().unwrap(), [0.5]);
}

#[tokio::test(start_paused = true)]
async fn a_task_has_the_time_of_the_call_and_a_user_who_replies_stops_it() {
    let script = task_script("input_required").on("tasks/result", |_| Reaction::new());
    let client = connect(&script).await;
    let call = || client.call("slow", ()).as_task(MINUTE * 60).extend_on_progress(MINUTE * 2);
    let started = tokio::time::Instant::now();
    let late = call().await.unwrap_err();
    assert!(matches!(late, ClientError::Call(CallError::TimedOut(_))), "{late}");
    assert!((MINUTE * 2..MINUTE * 3).contains(&started.elapsed()), "{:?}", started.elapsed());
    script.wait_for(|message| message["method"] == "tasks/cancel").await;

    let result_id = Arc::new(Mutex::new(Value::Null));
    let waiting = result_id.clone();
    let script = task_script("input_required")
        .on("tasks/result", move |request| {
            *waiting.lock().unwrap() = request["id"].clone();
            Reaction::new().message(&elicitation("open"))
        })
        .on_response(move |_| {
            let id = result_id.lock().unwrap().take();
            Reaction::new().message(&json!({ "jsonrpc": "2.0", "id": id, "result": done() }))
        });
    let client = connect(&script).await;
    let call = client.call("slow", ()).as_task(MINUTE * 60).extend_on_progress(MINUTE * 2);
    let slow_user = call.on_server_request(|request| async move {
        support::paused::pass(MINUTE * 10).await;
        Ok(reply(&request, "Ada"))
    });
    slow_user.await.unwrap();
}

#[cfg(all(feature = "http-client", feature = "http-server"))]
mod http {
    use linchpin::testing::Direction;
    use spec_check::Conversation;
    use tokio::sync::Semaphore;

    use super::*;

    /// Calls that ask in the reverse order of their start are only told apart by their response streams.
    #[tokio::test]
    async fn a_request_on_a_response_stream_reaches_the_call_of_that_stream() {
        let gate = Arc::new(Semaphore::new(0));
        let second = gate.clone();
        let late = move |topic: Topic, cx: Context| {
            let gate = gate.clone();
            async move {
                cx.log(LogLevel::Warning, topic.topic.as_str());
                gate.acquire().await?.forget();
                ask(topic, cx).await
            }
        };
        let service = curious().tool("late", "", late).build().unwrap();
        let endpoint = service.http().bind("127.0.0.1:0").await.unwrap();
        let (url, (end, ended)) = (endpoint.url(), tokio::sync::oneshot::channel::<()>());
        let faults: Arc<Mutex<Vec<String>>> = Arc::default();
        let (conversation, found) = (Mutex::new(Conversation::new()), faults.clone());
        let client = Client::http(url)
            .on_message(move |direction, text| {
                let mut conversation = conversation.lock().unwrap();
                match direction {
                    Direction::Sent => conversation.record_sent(text),
                    Direction::Received => {
                        found.lock().unwrap().extend(conversation.check_received(text).err());
                    }
                }
            })
            .revisions([SESSION])
            .revision_cache(RevisionCache::new())
            .forward_server_requests();
        let work = async {
            let client = client.connect().await.unwrap();
            let own = |topic: &'static str, opened: Option<Arc<Semaphore>>| {
                move |request: ServerRequest| {
                    if let Some(gate) = &opened {
                        gate.add_permits(1);
                    }
                    async move {
                        assert_eq!(message(&request), topic);
                        Ok(reply(&request, topic))
                    }
                }
            };
            let started = Arc::new(Notify::new());
            let start = started.clone();
            let late = client.call("late", json!({ "topic": "one" })).on_server_request(own("one", None));
            let logs: Arc<Mutex<Vec<CallLog>>> = Arc::default();
            let seen = logs.clone();
            let late = late.log(LogLevel::Warning, move |log| {
                seen.lock().unwrap().push(log);
                start.notify_one();
            });
            let early =
                client.call("ask", json!({ "topic": "two" })).on_server_request(own("two", Some(second)));
            let early = async {
                started.notified().await;
                // A call without a handler leaves its requests to the client, whatever other calls are in flight.
                let plain = client.call("ask", json!({ "topic": "three" })).await.unwrap().to_text();
                assert!(plain.contains("belongs to no call"), "{plain}");
                early.await
            };
            let (late, early) = tokio::join!(late.into_future(), early);
            assert_eq!(
                (late.unwrap().to_text(), early.unwrap().to_text()),
                ("one: one".into(), "two: two".into())
            );
            let logs = logs.lock().unwrap().clone();
            assert!(logs.len() == 1 && logs[0].is_attributed && logs[0].params.data == "one", "{logs:?}");
            assert!(!client.is_asking_tool("ask") && !client.is_asking_tool("late"));
            client.close().await;
            drop(end);
        };
        let (served, ()) = tokio::join!(endpoint.run_until(async { drop(ended.await) }), work);
        served.unwrap();
        assert_eq!(*faults.lock().unwrap(), Vec::<String>::new());
    }
}
