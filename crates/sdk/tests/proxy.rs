//! Proxy server: whatever revisions both sides use, clients see what the upstream server offers.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::client::{ListChanged, RevisionCache};
use linchpin::model::{CompletionReference, CreateMessageResult, ElicitResult, Root};
use linchpin::{
    Client, ClientBuilder, ClientError, Context, Error, NoArgs, Prompt, ResourceTemplate, Result, Revision,
    Server, Service, Tool, args,
};
use linchpin_jsonrpc::CallError;
use serde_json::json;
use support::live_counter::LiveCounter;
use support::{STATELESS, SchemaTap};
use tokio::sync::Notify;

const FORMS: Revision = Revision::ALL[2];

#[args]
struct Name {
    name: String,
}

async fn ask(_: NoArgs, cx: Context) -> Result<String> {
    let one = cx.elicit::<Name>("Who are you?").await?.name;
    Ok(format!("{one} and {}", cx.elicit::<Name>("Who is with you?").await?.name))
}

async fn think(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("What is 6 times 7?").await?.to_text())
}

async fn folders(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.roots().await?.into_iter().map(|root| root.uri).collect())
}

async fn steps(_: NoArgs, cx: Context) -> &'static str {
    cx.progress((1.0, 2.0, "half"));
    cx.progress((2.0, 2.0, "all"));
    "arrived"
}

async fn greet(name: Name) -> String {
    format!("Hello {}", name.name)
}

fn complete(typed: &str) -> Vec<String> {
    ["Ada", "Adam", "Bob"].into_iter().filter(|name| name.starts_with(typed)).map(str::to_owned).collect()
}

/// The upstream server.
fn behind() -> Server {
    Server::new("behind", "1")
        .add(Tool::new("greet").read_only().handler(greet))
        .tool("fails", "", || async { Result::<String>::Err(Error::tool("no luck")) })
        .tool("breaks", "", || async {
            Result::<String>::Err(Error::rpc_with(-31_000, "broken", json!({"a": 1})))
        })
        .tool("steps", "", steps)
        .tool("ask", "", ask)
        .tool("think", "", think)
        .tool("folders", "", folders)
        .resource("a:one", "one", || async { "first" })
        .add(
            ResourceTemplate::new("b:{name}", "names")
                .complete("name", |typed: String| async move { complete(&typed) })
                .handler(|name: Name| async move {
                    if name.name == "nobody" {
                        return Err(Error::resource_not_found("b:nobody"));
                    }
                    Ok(format!("file of {}", name.name))
                }),
        )
        .add(
            Prompt::new("greet")
                .complete("name", |typed: String| async move { complete(&typed) })
                .handler(greet),
        )
}

/// Connects a client for a proxy: with one revision, and forwarding server requests.
async fn upstream(service: &Service, revision: Revision) -> Client {
    let client =
        service.client().revision_cache(RevisionCache::new()).revisions([revision]).forward_server_requests();
    client.connect().await.unwrap()
}

async fn front(service: &Service, revision: Revision) -> Service {
    let proxy = Server::new("front", "1").proxy(upstream(service, revision).await).await.unwrap();
    proxy.build().unwrap()
}

/// Connects a client that handles all server requests.
async fn connect(client: ClientBuilder) -> Client {
    let client = client
        .on_elicit(|ask| async move {
            let name = if ask.message == "Who are you?" { "Ada" } else { "Bob" };
            Ok(ElicitResult::accept(json!({"name": name})))
        })
        .on_sample(|_| async { Ok(CreateMessageResult::text("model", "42")) })
        .roots([Root { uri: "file:///tmp/a".into(), name: None, meta: None }]);
    client.connect().await.unwrap()
}

async fn in_memory(service: &Service, revision: Revision) -> Client {
    connect(service.client().revision_cache(RevisionCache::new()).revisions([revision])).await
}

fn pairs() -> impl Iterator<Item = (Revision, Revision)> {
    Revision::ALL.into_iter().flat_map(|down| Revision::ALL.into_iter().map(move |up| (down, up)))
}

fn rejection<T: std::fmt::Debug>(result: std::result::Result<T, ClientError>) -> (i64, String) {
    match result {
        Err(ClientError::Call(CallError::Rejected(error))) => (error.code, error.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn everything_passes_between_all_revisions() {
    for (down, up) in pairs() {
        let tap = SchemaTap::new(&front(&behind().build().unwrap(), up).await);
        let client = connect(tap.client(down)).await;
        let pair = format!("{down} before {up}");
        let tools = client.tools().all().await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["greet", "fails", "breaks", "steps", "ask", "think", "folders"], "{pair}");
        let ada = json!({"name": "Ada"});
        assert_eq!(client.call("greet", &ada).await.unwrap().to_text(), "Hello Ada", "{pair}");
        let failed = client.call("fails", ()).await.unwrap();
        assert_eq!((failed.is_error, failed.to_text()), (Some(true), "no luck".into()), "{pair}");
        assert_eq!(rejection(client.call("breaks", ()).await), (-31_000, "broken".into()), "{pair}");
        assert_eq!(rejection(client.call("nothing", ()).await).0, -32602, "{pair}");
        let wrong = client.call("greet", json!({"name": 3})).await.unwrap();
        assert!(wrong.is_error == Some(true) && wrong.to_text().contains("/name"), "{pair}: {wrong:?}");
        assert_eq!(client.resources().all().await.unwrap()[0].uri, "a:one", "{pair}");
        assert_eq!(client.resource_templates().all().await.unwrap()[0].uri_template, "b:{name}", "{pair}");
        for (uri, said) in [("a:one", "first"), ("b:Ada", "file of Ada")] {
            assert_eq!(client.read(uri).await.unwrap().contents[0].text.as_deref(), Some(said), "{pair}");
        }
        for uri in ["b:nobody", "c:nothing"] {
            let code = if down == STATELESS { -32602 } else { -32002 };
            assert_eq!(rejection(client.read(uri).await).0, code, "{uri} in {pair}");
        }
        let filled = client.prompt("greet", [("name", "Ada")]).await.unwrap();
        assert_eq!(filled.messages[0].content.as_text(), Some("Hello Ada"), "{pair}");
        for reference in [
            CompletionReference::Prompt { name: "greet".into(), title: None },
            CompletionReference::Resource { uri: "b:{name}".into() },
        ] {
            let completed = client.complete(reference, "name", "Ad").await.unwrap();
            assert_eq!(completed.completion.values, ["Ada", "Adam"], "{pair}");
        }
        tap.messages();
    }
}

#[tokio::test]
async fn questions_reach_whoever_made_the_call() {
    for (down, up) in pairs() {
        let tap = SchemaTap::new(&front(&behind().build().unwrap(), up).await);
        let client = connect(tap.client(down)).await;
        let pair = format!("{down} before {up}");
        assert_eq!(client.call("think", ()).await.unwrap().to_text(), "42", "{pair}");
        assert_eq!(client.call("folders", ()).await.unwrap().to_text(), "file:///tmp/a", "{pair}");
        let asked = client.call("ask", ()).await.unwrap();
        if down >= FORMS && up >= FORMS {
            assert_eq!(asked.to_text(), "Ada and Bob", "{pair}");
        } else {
            assert_eq!(asked.is_error, Some(true), "{pair}");
            assert!(asked.to_text().contains("elicitation"), "{pair}: {}", asked.to_text());
        }
        tap.messages();
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_so_in_its_own_way() {
    for (down, up) in pairs() {
        let tap = SchemaTap::new(&front(&behind().build().unwrap(), up).await);
        let client = tap.client(down).connect().await.unwrap();
        for tool in ["ask", "think", "folders"] {
            match client.call(tool, ()).await {
                Ok(output) => assert_eq!(output.is_error, Some(true), "{tool}, {down} before {up}"),
                error => {
                    assert_eq!(down, STATELESS, "{tool}, {down} before {up}: {error:?}");
                    assert_eq!(rejection(error).0, -32021, "{tool}, {down} before {up}");
                }
            }
        }
        let (_, received) = tap.messages();
        assert!(received.iter().all(|line| line.get("method").is_none()), "no server requests: {received:?}");
    }
}

#[tokio::test]
async fn progress_passes() {
    for (down, up) in pairs() {
        let client = in_memory(&front(&behind().build().unwrap(), up).await, down).await;
        let told: Arc<Mutex<Vec<f64>>> = Arc::default();
        let tell = told.clone();
        let call =
            client.call("steps", ()).progress(move |progress| tell.lock().unwrap().push(progress.done()));
        assert_eq!(call.await.unwrap().to_text(), "arrived");
        assert_eq!(*told.lock().unwrap(), [1.0, 2.0], "{down} before {up}");
    }
}

/// Paused time: it advances when nothing else is to be done.
async fn settle() {
    support::paused::pass(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_is_given_up_behind() {
    for (down, up) in pairs() {
        let alive = Arc::new(AtomicUsize::new(0));
        let counted = alive.clone();
        let hang = move || {
            let alive = LiveCounter::new(&counted);
            async move {
                std::future::pending::<()>().await;
                drop(alive);
                "never"
            }
        };
        let service = behind().tool("hang", "", hang).build().unwrap();
        let client = in_memory(&front(&service, up).await, down).await;
        let minute = Duration::from_mins(1);
        let call = client.call("hang", ()).timeout(minute * 60).into_future();
        let begun = alive.clone();
        tokio::select! {
            _ = call => panic!("it hangs"),
            () = support::paused::pass(minute) => assert_eq!(begun.load(Ordering::SeqCst), 1),
        }
        settle().await;
        assert_eq!(alive.load(Ordering::SeqCst), 0, "{down} before {up}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_behind_are_changes_in_front() {
    for (down, up) in pairs() {
        let service = behind().build().unwrap();
        let front = front(&service, up).await;
        let (changed, told) = (Arc::new(Notify::new()), Arc::<Mutex<Vec<ListChanged>>>::default());
        let (notify, tell) = (changed.clone(), told.clone());
        let client = front.client().revision_cache(RevisionCache::new()).revisions([down]).on_list_changed(
            move |list| {
                tell.lock().unwrap().push(list);
                notify.notify_one();
            },
        );
        let client = client.connect().await.unwrap();
        let pair = format!("{down} before {up}");
        service.handle().add(Tool::new("new").handler(|| async { "new" })).unwrap();
        changed.notified().await;
        assert_eq!(client.call("new", ()).await.unwrap().to_text(), "new", "{pair}");
        service.handle().remove_tool("greet");
        changed.notified().await;
        assert_eq!(rejection(client.call("greet", json!({"name": "Ada"})).await).0, -32602, "{pair}");
        service.handle().remove_prompt("greet");
        changed.notified().await;
        assert_eq!(client.prompts().all().await.unwrap(), [], "{pair}");
        service.handle().remove_resource("a:one");
        service.handle().remove_resource("b:{name}");
        changed.notified().await;
        assert_eq!(client.resources().all().await.unwrap(), [], "{pair}");
        assert_eq!(client.resource_templates().all().await.unwrap(), [], "{pair}");
        let expected = [ListChanged::Tools, ListChanged::Tools, ListChanged::Prompts, ListChanged::Resources];
        assert_eq!(*told.lock().unwrap(), expected, "{pair}");
    }
}

#[tokio::test]
async fn names_can_have_a_prefix_and_must_not_clash() {
    for up in Revision::ALL {
        let service = behind().build().unwrap();
        let proxy = Server::new("front", "1").tool("greet", "", || async { "own" });
        let proxy = proxy.proxy_as("far", upstream(&service, up).await).await.unwrap().build().unwrap();
        let client = in_memory(&proxy, STATELESS).await;
        assert_eq!(client.call("greet", ()).await.unwrap().to_text(), "own");
        let ada = json!({"name": "Ada"});
        assert_eq!(client.call("far_greet", &ada).await.unwrap().to_text(), "Hello Ada");
        let filled = client.prompt("far_greet", [("name", "Ada")]).await.unwrap();
        assert_eq!(filled.messages[0].content.as_text(), Some("Hello Ada"));
        let reference = CompletionReference::Prompt { name: "far_greet".into(), title: None };
        assert_eq!(client.complete(reference, "name", "B").await.unwrap().completion.values, ["Bob"]);
        assert_eq!(client.read("a:one").await.unwrap().contents[0].text.as_deref(), Some("first"));
        let clash = Server::new("front", "1").tool("greet", "", || async { "own" });
        let fault = clash.proxy(upstream(&service, up).await).await.err().unwrap().to_string();
        assert!(fault.contains("`greet`"), "{fault}");
    }
}

#[tokio::test]
async fn a_server_behind_that_is_gone_is_a_clear_error() {
    for (down, up) in pairs() {
        let behind = upstream(&behind().build().unwrap(), up).await;
        let proxy = Server::new("front", "1").proxy(behind.clone()).await.unwrap();
        let client = in_memory(&proxy.build().unwrap(), down).await;
        behind.close().await;
        let output = client.call("greet", json!({"name": "Ada"})).await.unwrap();
        assert_eq!(output.is_error, Some(true), "{down} before {up}");
        let said = output.to_text();
        assert!(said.contains("the remote server failed"), "{said}");
        let (code, said) = rejection(client.read("a:one").await);
        assert_eq!(code, -32603, "{down} before {up}");
        assert!(said.contains("the remote server failed"), "{said}");
        assert_eq!(client.tools().all().await.unwrap().len(), 7, "the proxy stays alive");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_keeps_the_server_behind_when_the_one_in_front_is_gone() {
    for (down, up) in pairs() {
        let alive = Arc::new(AtomicUsize::new(0));
        let service = behind().state(LiveCounter::new(&alive)).build().unwrap();
        let front = front(&service, up).await;
        drop(service);
        let client = in_memory(&front, down).await;
        assert_eq!(client.call("think", ()).await.unwrap().to_text(), "42");
        drop((client, front));
        // Results of round trips are stored for a while, in case a response is lost.
        support::paused::pass(Duration::from_mins(11)).await;
        assert_eq!(alive.load(Ordering::SeqCst), 0, "{down} before {up}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_are_not_mixed_up() {
    for up in Revision::ALL.into_iter().filter(|up| *up >= FORMS) {
        let front = front(&behind().build().unwrap(), up).await;
        let named = async |name: &'static str| {
            let client = front.client().revision_cache(RevisionCache::new()).on_elicit(move |_| async move {
                settle().await;
                Ok(ElicitResult::accept(json!({"name": name})))
            });
            client.connect().await.unwrap()
        };
        let (ada, eve) = (named("Ada").await, named("Eve").await);
        let (one, two) = tokio::join!(ada.call("ask", ()), eve.call("ask", ()));
        let (one, two) = (one.unwrap(), two.unwrap());
        if up == STATELESS {
            assert_eq!((&*one.to_text(), &*two.to_text()), ("Ada and Ada", "Eve and Eve"));
        } else {
            // Server requests do not name the call they belong to: with two calls in flight, none is handled.
            let unclear = |said: &str| said.contains("does not name the call it belongs to");
            let (one, two) = (one.to_text(), two.to_text());
            assert!(unclear(&one) || one == "Ada and Ada", "{one}");
            assert!(unclear(&two) || two == "Eve and Eve", "{two}");
            assert!(unclear(&one) || unclear(&two));
        }
    }
}
