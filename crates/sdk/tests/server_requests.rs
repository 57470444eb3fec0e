//! Server requests: timeouts, cancellation, layers, contexts that cannot send them, and forms in the format of each
//! revision.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::model::ElicitResult;
use linchpin::server::{Next, Request};
use linchpin::{Client, Context, NoArgs, Prompt, Result, Revision, Server, Service, Tool, args};
use serde_json::{Value, json};
use support::{Clock, Peer, STATELESS, SchemaTap, failure, fault, text};
use tokio::sync::Semaphore;

const FORMS: Revision = Revision::ALL[2];
const HOUR: Duration = Duration::from_hours(1);

#[args]
struct Name {
    name: String,
}

async fn ask(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.elicit::<Name>("Who are you?").await?.name)
}

fn revisions() -> impl Iterator<Item = Revision> {
    Revision::ALL.into_iter().filter(|revision| *revision >= FORMS)
}

/// A client in the same runtime, so that paused time advances for both. Its user responds after `pause`.
async fn slow(service: &Service, revision: Revision, pause: Duration) -> Client {
    let client =
        service.client().revision_cache(RevisionCache::new()).revisions([revision]).timeout(HOUR * 10);
    let client = client.on_elicit(move |_| async move {
        support::paused::pass(pause).await;
        Ok(ElicitResult::accept(json!({"name": "Ada"})))
    });
    client.connect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_user_takes_is_not_the_tools() {
    let tool = |_: NoArgs, cx: Context| async move {
        support::paused::pass(Duration::from_millis(900)).await;
        let name = cx.elicit::<Name>("Who are you?").await?.name;
        support::paused::pass(Duration::from_millis(if name == "Ada" { 50 } else { 200 })).await;
        let name = cx.elicit::<Name>("Really?").await?.name;
        support::paused::pass(Duration::from_millis(if name == "Ada" { 40 } else { 200 })).await;
        Result::Ok(name)
    };
    let slow_tool = |_: NoArgs, cx: Context| async move {
        cx.elicit::<Name>("Who are you?").await?;
        support::paused::pass(Duration::from_millis(1100)).await;
        Result::Ok("too late")
    };
    for revision in revisions() {
        let second = Duration::from_secs(1);
        let service = Server::new("asks", "1")
            .add(Tool::new("quick").timeout(second).handler(tool))
            .add(Tool::new("slow").timeout(second).handler(slow_tool))
            .input_timeout(HOUR * 2)
            .build()
            .unwrap();
        let client = slow(&service, revision, HOUR).await;
        assert_eq!(client.call("quick", ()).await.unwrap().to_text(), "Ada", "{revision}");
        let output = client.call("slow", ()).await.unwrap();
        assert_eq!(output.is_error, Some(true), "{revision}");
        assert_eq!(output.to_text(), "the tool `slow` did not finish within 1s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_has_only_so_much_time() {
    for revision in revisions() {
        let server = Server::new("asks", "1").tool("ask", "", ask).input_timeout(HOUR);
        let client = slow(&server.build().unwrap(), revision, HOUR * 2).await;
        let said = match client.call("ask", ()).await {
            Ok(output) => output.to_text(),
            Err(error) => error.to_string(),
        };
        // Without a session the server has dropped the call, and does not run it again.
        let expected = if revision == STATELESS { "no longer holds it" } else { "no response within 3600s" };
        assert!(said.contains(expected), "{revision}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_can_race_with_a_timer() {
    let tool = |_: NoArgs, cx: Context| async move {
        tokio::select! {
            biased;
            name = cx.elicit::<Name>("Who are you?") => name.map(|name| name.name),
            () = support::paused::pass(HOUR) => Ok("nobody".to_owned()),
        }
    };
    for revision in revisions() {
        let service = Server::new("asks", "1").tool("ask", "", tool).input_timeout(HOUR * 9).build().unwrap();
        let quick = slow(&service, revision, HOUR / 2).await;
        assert_eq!(quick.call("ask", ()).await.unwrap().to_text(), "Ada", "{revision}");
        let late = slow(&service, revision, HOUR * 2).await;
        // Without a session the call is idle until the response arrives.
        let expected = if revision == STATELESS { "Ada" } else { "nobody" };
        assert_eq!(late.call("ask", ()).await.unwrap().to_text(), expected, "{revision}");
    }
}

#[test]
fn a_question_that_lost_its_race_is_withdrawn() {
    for revision in revisions().filter(|revision| *revision != STATELESS) {
        let sign = Arc::new(Semaphore::new(0));
        let other = sign.clone();
        let tool = move |_: NoArgs, cx: Context| {
            let other = other.clone();
            async move {
                tokio::select! {
                    name = cx.elicit::<Name>("Who are you?") => name.map(|name| name.name),
                    _ = other.acquire() => Ok("nobody".to_owned()),
                }
            }
        };
        let service = Server::new("asks", "1").tool("ask", "", tool).build().unwrap();
        let mut peer = Peer::open_with(revision, service, Clock::Real, &json!({"elicitation": {}}));
        let call = peer.send("tools/call", json!({"name": "ask"}));
        let question = peer.question("elicitation/create");
        sign.add_permits(1);
        let withdrawn = peer.read();
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
        assert_eq!(withdrawn["params"]["requestId"], question["id"]);
        assert_eq!(text(&peer.answer(&call)["result"]), "nobody");
        peer.reply(&question, json!({"action": "cancel"})); // too late; ignored
        peer.alive();
        peer.close();
    }
}

#[test]
fn a_call_that_is_cancelled_withdraws_its_question() {
    for revision in revisions().filter(|revision| *revision != STATELESS) {
        let service = Server::new("asks", "1").tool("ask", "", ask).build().unwrap();
        let mut peer = Peer::open_with(revision, service, Clock::Real, &json!({"elicitation": {}}));
        let call = peer.send("tools/call", json!({"name": "ask"}));
        let question = peer.question("elicitation/create");
        peer.notify("notifications/cancelled", json!({"requestId": call}));
        let withdrawn = peer.read();
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
        assert_eq!(withdrawn["params"]["requestId"], question["id"]);
        peer.reply(&question, json!({"action": "accept", "content": {"name": "Ada"}}));
        peer.alive(); // and nothing else: the call has no response
        peer.close();
    }
}

#[test]
fn a_call_that_was_given_up_asks_nothing_more() {
    let (sender, said) = std::sync::mpsc::sync_channel(1);
    let tool = move |_: NoArgs, cx: Context| {
        let sender = sender.clone();
        async move {
            cx.log(linchpin::LogLevel::Emergency, "begun");
            cx.cancelled().await;
            let asked = cx.elicit::<Name>("Is there anything left to do?").await;
            sender.send(asked.map(|name| name.name).map_err(|error| error.to_string())).unwrap();
        }
    };
    for revision in revisions().filter(|revision| *revision != STATELESS) {
        let service = Server::new("asks", "1").tool("ask", "", tool.clone()).build().unwrap();
        let mut peer = Peer::open_with(revision, service, Clock::Real, &json!({"elicitation": {}}));
        let call = peer.send("tools/call", json!({"name": "ask"}));
        assert_eq!(peer.read()["method"], "notifications/message");
        peer.notify("notifications/cancelled", json!({"requestId": call}));
        let said = said.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(said.unwrap_err().contains("the call has already ended"), "{revision}");
        peer.close();
    }
}

#[test]
fn an_answer_that_is_no_answer_is_an_error_that_the_model_reads() {
    let service = || Server::new("asks", "1").tool("ask", "", ask).build().unwrap();
    for revision in revisions().filter(|revision| *revision != STATELESS) {
        let mut peer = Peer::open_with(revision, service(), Clock::Real, &json!({"elicitation": {}}));
        let call = peer.send("tools/call", json!({"name": "ask"}));
        let question = peer.question("elicitation/create");
        peer.reply(&question, json!({"action": "perhaps"}));
        let said = failure(&peer.answer(&call)["result"]);
        assert!(said.starts_with("the client's response to elicitation/create is malformed at \"/action\""));
        let call = peer.send("tools/call", json!({"name": "ask"}));
        let question = peer.question("elicitation/create");
        let error = json!({"code": -32601, "message": "no users here"});
        peer.raw(json!({"jsonrpc": "2.0", "id": question["id"], "error": error}).to_string());
        let said = failure(&peer.answer(&call)["result"]);
        assert!(said.contains("did not respond to elicitation/create: no users here"), "{said}");
        peer.close();
    }
}

#[tokio::test]
async fn layers_are_around_the_whole_call() {
    let layers = Arc::new(AtomicUsize::new(0));
    for revision in revisions() {
        for (parks, times) in [(true, 1), (false, if revision == STATELESS { 2 } else { 1 })] {
            layers.store(0, Ordering::Relaxed);
            let count = layers.clone();
            let layer = move |request: Request, next: Next| {
                count.fetch_add(usize::from(request.method() == "tools/call"), Ordering::Relaxed);
                request.context().set(String::from("Miss "));
                async move {
                    let response = next.run(request).await?;
                    let result = response.to_json();
                    assert_ne!(result["resultType"], "input_required", "a layer sees results only");
                    Ok(response)
                }
            };
            let tool = |_: NoArgs, cx: Context| async move {
                let name = cx.elicit::<Name>("Who are you?").await?.name;
                Result::Ok(format!("{}{name}", cx.get::<String>().unwrap()))
            };
            let server = Server::new("asks", "1").layer(layer);
            let service = server.add(Tool::new("ask").read_only().handler(tool)).build().unwrap();
            let service = if parks { service } else { service.without_parking() };
            let client = slow(&service, revision, Duration::ZERO).await;
            assert_eq!(client.call("ask", ()).await.unwrap().to_text(), "Miss Ada", "{revision}");
            assert_eq!(layers.load(Ordering::Relaxed), times, "{revision}");
        }
    }
}

#[tokio::test]
async fn a_layer_may_ask_before_the_call() {
    let layer = |request: Request, next: Next| async move {
        if request.method() == "tools/call" {
            let name = request.context().elicit::<Name>("Who allows this?").await?.name;
            request.context().set(name);
        }
        next.run(request).await
    };
    for revision in revisions() {
        let tool =
            |_: NoArgs, cx: Context| async move { format!("allowed by {}", cx.get::<String>().unwrap()) };
        let service = Server::new("asks", "1").layer(layer).tool("guarded", "", tool).build().unwrap();
        let client = slow(&service, revision, Duration::ZERO).await;
        assert_eq!(client.call("guarded", ()).await.unwrap().to_text(), "allowed by Ada", "{revision}");
    }
}

#[test]
fn what_cannot_ask_says_so() {
    let prompt = Prompt::new("p").complete("name", |_: String, cx: Context| async move {
        cx.elicit::<Name>("Who are you?").await.map(|name| vec![name.name])
    });
    let service = Server::new("asks", "1")
        .add(prompt.handler(|name: Name| async move { name.name }))
        .define_method("x/ask", |_: NoArgs, cx: Context| async move {
            Result::Ok(json!({"name": ask(NoArgs {}, cx).await?}))
        })
        .tool("ask", "", ask)
        .build()
        .unwrap();
    let complete =
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "name", "value": ""}});
    for revision in revisions() {
        let capabilities = json!({"elicitation": {"form": {}}});
        let mut peer = Peer::open_with(revision, service.clone(), Clock::Real, &capabilities);
        for (method, params) in [("completion/complete", complete.clone()), ("x/ask", json!({}))] {
            let id = peer.send(method, params);
            if revision == STATELESS {
                let (code, message) = fault(&peer.answer(&id));
                assert_eq!(code, -32603, "{method}");
                assert!(
                    message.contains("only tools, prompts and resources can do so without a session"),
                    "{message}"
                );
            } else {
                let question = peer.question("elicitation/create");
                peer.reply(&question, json!({"action": "accept", "content": {"name": "Ada"}}));
                assert!(peer.answer(&id)["result"].to_string().contains("Ada"));
            }
        }
        peer.close();
    }
    // Without a session there is only the response: a separate request could not be delivered.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}});
    let said = failure(&support::one_shot(&service, &call).unwrap()["result"]);
    assert!(said.starts_with("cannot send elicitation/create to this client"), "{said}");
}

#[args]
#[derive(Debug)]
#[expect(dead_code, reason = "only printed with Debug")]
struct Order {
    /// Who gets it
    #[schemars(length(min = 1, max = 80))]
    name: String,
    #[schemars(range(min = 1, max = 9))]
    count: u8,
    price: f64,
    gift: Option<bool>,
    size: Size,
    color: Option<Color>,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
enum Size {
    /// not large
    Small,
    /// not small
    Large,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
enum Color {
    Red,
    Green,
}

#[args]
#[derive(Debug)]
struct Several {
    sizes: Vec<Size>,
}

#[tokio::test]
async fn forms_are_written_in_the_words_of_each_revision() {
    let order = |_: NoArgs, cx: Context| async move {
        Result::Ok(format!("{:?}", cx.elicit::<Order>("What?").await?))
    };
    for revision in revisions() {
        let service = Server::new("asks", "1").tool("order", "", order).build().unwrap();
        let tap = SchemaTap::new(&service);
        let client = tap.client(revision).on_elicit(|_| async {
            let order = json!({"name": "Ada", "count": 2, "price": 2, "size": "Large", "color": "Red"});
            Ok(ElicitResult::accept(order))
        });
        let client = client.connect().await.unwrap();
        let said = client.call("order", ()).await.unwrap().to_text();
        assert!(said.contains("count: 2") && said.contains("Large") && said.contains("Some(Red)"), "{said}");
        let (_, received) = tap.messages();
        let forms: Vec<&Value> = received
            .iter()
            .filter_map(|message| {
                let asked = message.pointer("/result/inputRequests/q1/params");
                asked.or_else(|| message.get("params"))?.get("requestedSchema")
            })
            .collect();
        assert_eq!(forms.len(), 1, "{received:?}");
        let size = &forms[0]["properties"]["size"];
        if revision == FORMS {
            assert_eq!(size["enum"], json!(["Small", "Large"]), "{size}");
            assert_eq!(size["enumNames"], json!(["not large", "not small"]), "{size}");
        } else {
            assert_eq!(size["oneOf"][1], json!({"const": "Large", "title": "not small"}), "{size}");
        }
        assert_eq!(forms[0]["properties"]["color"]["enum"], json!(["Red", "Green"]));
        assert_eq!(forms[0]["required"], json!(["name", "count", "price", "size"]));
    }
}

#[tokio::test]
async fn a_form_that_a_revision_cannot_show_is_not_sent() {
    let several = |_: NoArgs, cx: Context| async move {
        Result::Ok(format!("{:?}", cx.elicit::<Several>("Which?").await?.sizes))
    };
    for revision in revisions() {
        let service = Server::new("asks", "1").tool("several", "", several).build().unwrap();
        let tap = SchemaTap::new(&service);
        let client = tap
            .client(revision)
            .on_elicit(|_| async { Ok(ElicitResult::accept(json!({"sizes": ["Small", "Large"]}))) });
        let output = client.connect().await.unwrap().call("several", ()).await.unwrap();
        if revision == FORMS {
            assert_eq!(output.is_error, Some(true), "multiple choice was added later: {output:?}");
            assert!(output.to_text().contains("`sizes`"), "{}", output.to_text());
        } else {
            assert_eq!(output.to_text(), "[Small, Large]");
        }
        tap.messages();
    }
}
