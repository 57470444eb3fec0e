//! Handler context: request data, notifications, and cancellation.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use linchpin::model::key;
use linchpin::{Context, Error, NoArgs, Resource, Result, Revision, Server, Tool};
use serde_json::{Value, json};
use support::{Clock, Peer, STATELESS, failure, initialize, session_revisions, stateless};
use tokio::sync::Semaphore;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct Greeting(&'static str);

fn describe(cx: &Context) -> Value {
    let client = cx.client().map(|client| format!("{} {}", client.name, client.version));
    json!({
        "client": client,
        "sampling": cx.capabilities().sampling.is_some(),
        "elicitation": cx.capabilities().elicitation.is_some(),
        "initialized": cx.is_initialized(),
        "id": cx.request_id().to_string(),
        "trace": cx.meta().get("example.com/trace"),
        "greeting": cx.get::<Greeting>().map(|greeting| greeting.0),
        "missing": cx.get::<String>().is_none(),
    })
}

fn server() -> Server {
    Server::new("test", "1")
        .state(Greeting("hello"))
        .tool("describe", "", |_: NoArgs, cx: Context| async move { describe(&cx) })
        .add(Resource::new("a:describe", "describe").handler(|cx: Context| async move { describe(&cx) }))
        .prompt("describe", "", |_: NoArgs, cx: Context| async move { describe(&cx).to_string() })
        .define_method("x/describe", |_: NoArgs, cx: Context| async move { describe(&cx) })
}

#[test]
fn every_handler_sees_who_asks_and_what() {
    let capabilities = json!({"sampling": {}});
    let texts = [
        ("tools/call", json!({"name": "describe"}), "/content/0/text"),
        ("resources/read", json!({"uri": "a:describe"}), "/contents/0/text"),
        ("prompts/get", json!({"name": "describe"}), "/messages/0/content/text"),
    ];
    for revision in Revision::ALL {
        let mut peer = Peer::open_with(revision, server().build().unwrap(), Clock::Real, &capabilities);
        let mut meta = json!({"example.com/trace": "t"});
        if revision == STATELESS {
            meta[key::CLIENT_CAPABILITIES] = capabilities.clone();
        }
        let expected = |id: &Value| {
            json!({
                "client": "peer 1", "sampling": true, "elicitation": false, "initialized": true, "id": id.to_string(),
                "trace": "t", "greeting": "hello", "missing": true,
            })
        };
        for (method, mut params, place) in texts.clone() {
            params["_meta"] = meta.clone();
            let id = peer.send(method, params);
            let answer = peer.answer(&id);
            let text = answer["result"].pointer(place).unwrap().as_str().unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected(&id), "{method} in {revision}");
        }
        let id = peer.send("x/describe", json!({"_meta": meta}));
        assert_eq!(peer.answer(&id)["result"]["id"], id.to_string());
        peer.close();
    }
}

#[test]
fn string_ids_and_unnamed_clients_are_fine() {
    let mut peer = Peer::open(STATELESS, server());
    let mut params = stateless(json!({"name": "describe"}));
    params["_meta"].as_object_mut().unwrap().remove(key::CLIENT_INFO);
    let request = json!({"jsonrpc": "2.0", "id": "a \"b\"", "method": "tools/call", "params": params});
    peer.raw(request.to_string());
    let text = support::text(&peer.answer(&json!("a \"b\""))["result"]);
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&seen["id"], &seen["client"]), (&json!("a \"b\""), &Value::Null));
    peer.close();
}

#[test]
fn a_session_is_open_when_the_client_says_so() {
    for (revision, word) in
        session_revisions().zip(["notifications/initialized", "initialized"].into_iter().cycle())
    {
        let mut peer = Peer::connect(revision, server().build().unwrap(), Clock::Real);
        let initialized = |peer: &mut Peer| {
            let seen: Value = serde_json::from_str(&peer.call_text("describe", json!({}))).unwrap();
            seen["initialized"] == true
        };
        peer.result("initialize", initialize(revision.as_str(), &json!({})));
        assert!(!initialized(&mut peer));
        peer.notify(word, Value::Null);
        assert!(initialized(&mut peer), "{word}");
        peer.close();
    }
}

#[test]
fn sessions_remember_and_requests_without_one_are_told() {
    struct Count(u32);
    let server = || {
        Server::new("test", "1").tool("count", "", |_: NoArgs, cx: Context| async move {
            let session = cx.session()?;
            let next = session.get::<Count>().map_or(1, |count| count.0 + 1);
            session.set(Count(next));
            Ok::<_, Error>(cx.get::<Count>().map_or(0, |count| count.0))
        })
    };
    let service = server().build().unwrap();
    for revision in session_revisions() {
        let mut peer = Peer::open_with(revision, service.clone(), Clock::Real, &json!({}));
        for expected in ["1", "2", "3"] {
            assert_eq!(peer.call_text("count", json!({})), expected, "each session counts from one");
        }
        peer.close();
    }
    let none =
        "this client has no session: return a handle from one tool and take it as an argument of the next";
    let mut peer = Peer::open(STATELESS, server());
    assert_eq!(failure(&peer.call("count", json!({}))), none);
    peer.close();
    // Also on a connection that has a session for other requests.
    let mut peer = Peer::open(Revision::LATEST_SESSION, server());
    let params = stateless(json!({"name": "count"}));
    peer.raw(json!({"jsonrpc": "2.0", "id": 100, "method": "tools/call", "params": params}).to_string());
    assert_eq!(failure(&peer.answer(&json!(100))["result"]), none);
    peer.close();
}

#[test]
fn handlers_send_notifications_of_their_own() {
    for revision in Revision::ALL {
        let server = Server::new("test", "1").tool("tell", "", |_: NoArgs, cx: Context| async move {
            cx.notify("x-test/told", &json!({"what": "a\nb"}));
        });
        let mut peer = Peer::open(revision, server);
        let id = peer.send("tools/call", json!({"name": "tell"}));
        assert_eq!(
            peer.read(),
            json!({"jsonrpc": "2.0", "method": "x-test/told", "params": {"what": "a\nb"}})
        );
        peer.answer(&id);
        peer.close();
    }
}

/// Reports its drop.
struct Guard(SyncSender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// A server with handlers that wait until they are cancelled, and the receiver of their reports.
fn waiting() -> (Server, Receiver<&'static str>) {
    let (said, heard) = sync_channel(8);
    let (unaware, watching, asking) = (said.clone(), said.clone(), said);
    let server = Server::new("test", "1")
        .tool("unaware", "", move |_: NoArgs| {
            let guard = Guard(unaware.clone());
            async move {
                std::future::pending::<()>().await;
                drop(guard);
            }
        })
        .tool("watching", "", move |_: NoArgs, cx: Context| {
            let said = watching.clone();
            async move {
                cx.cancelled().await;
                tokio::task::yield_now().await;
                cx.progress(1.0);
                cx.notify("x-test/too-late", &json!({}));
                said.send("cleaned up").unwrap();
                "a response to a cancelled request"
            }
        })
        .tool("asking", "", move |_: NoArgs, cx: Context| {
            let said = asking.clone();
            async move {
                while !cx.is_cancelled() {
                    tokio::task::yield_now().await;
                }
                said.send("noticed").unwrap();
            }
        });
    (server, heard)
}

#[test]
fn a_request_that_is_given_up_is_not_answered() {
    for revision in Revision::ALL {
        let (server, heard) = waiting();
        let mut peer = Peer::open(revision, server);
        for (tool, expected) in [("unaware", "dropped"), ("watching", "cleaned up"), ("asking", "noticed")] {
            let id = peer.send("tools/call", json!({"name": tool, "_meta": {"progressToken": 1}}));
            peer.alive();
            peer.notify("notifications/cancelled", json!({"requestId": id, "reason": "changed my mind"}));
            assert_eq!(heard.recv_timeout(TEST_TIMEOUT), Ok(expected), "{tool} in {revision}");
            peer.alive();
            peer.notify("notifications/cancelled", json!({"requestId": id})); // too late
            peer.alive();
        }
        peer.close();
    }
}

#[test]
fn cancelling_what_is_done_changes_nothing() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let id = peer.send("tools/call", json!({"name": "describe"}));
        peer.answer(&id);
        peer.notify("notifications/cancelled", json!({"requestId": id}));
        peer.notify("notifications/cancelled", json!({"requestId": "another"}));
        peer.alive();
        peer.close();
    }
}

#[test]
fn tools_that_take_too_long_fail() {
    for revision in Revision::ALL {
        let (said, heard) = sync_channel(1);
        let slow = Tool::new("slow").timeout(Duration::from_mins(1)).handler(move |_: NoArgs| {
            let guard = Guard(said.clone());
            async move {
                std::future::pending::<()>().await;
                drop(guard);
            }
        });
        let quick = Tool::new("quick").timeout(Duration::from_mins(1)).handler(|| async { "in time" });
        let mut peer = Peer::open_paused(revision, Server::new("test", "1").add(slow).add(quick));
        assert_eq!(peer.call_text("quick", json!({})), "in time");
        assert_eq!(failure(&peer.call("slow", json!({}))), "the tool `slow` did not finish within 60s");
        assert_eq!(heard.recv_timeout(TEST_TIMEOUT), Ok("dropped"));
        peer.alive();
        peer.close();
    }
}

#[test]
fn a_client_may_keep_only_so_many_requests_waiting() -> Result {
    for revision in Revision::ALL {
        let gate = Arc::new(Semaphore::new(0));
        let opener = gate.clone();
        let server = server().max_in_flight(2).tool("gate", "", move |_: NoArgs| {
            let gate = gate.clone();
            async move {
                gate.acquire_owned().await?.forget();
                Ok::<_, Error>(())
            }
        });
        let mut peer = Peer::open(revision, server);
        let ids = [(); 2].map(|()| peer.send("tools/call", json!({"name": "gate"})));
        for _ in 0..2 {
            let refused = (-32603, "2 requests are in flight: wait for responses first".to_owned());
            assert_eq!(peer.error("tools/call", json!({"name": "gate"})), refused, "{revision}");
        }
        opener.add_permits(1);
        let answered = peer.read()["id"].clone();
        assert!(ids.contains(&answered));
        peer.alive();
        opener.add_permits(2);
        let third = peer.send("tools/call", json!({"name": "gate"}));
        let mut last = [peer.read()["id"].clone(), peer.read()["id"].clone()];
        last.sort_by_key(Value::as_i64);
        assert_eq!(last, [ids.into_iter().find(|id| *id != answered).unwrap(), third]);
        peer.end().1?;
    }
    Ok(())
}

#[test]
fn handlers_without_their_state_say_what_is_missing_to_the_author() {
    let (said, heard) = sync_channel(1);
    let server = Server::new("test", "1")
        .on_error(move |report| said.send(report.error.to_string()).unwrap())
        .tool("needs", "", |_: NoArgs, cx: Context| async move {
            linchpin::State::<Greeting>::from_context(&cx).map(|greeting| greeting.0)
        });
    let mut peer = Peer::open(STATELESS, server);
    let said = failure(&peer.call("needs", json!({})));
    assert_eq!(said, "The tool `needs` failed because of an internal error.");
    let expected = "the handler takes a State<context::Greeting>, which the server does not have: call .state(value) on the server";
    assert_eq!(heard.recv_timeout(TEST_TIMEOUT).unwrap(), expected);
    peer.close();
}
