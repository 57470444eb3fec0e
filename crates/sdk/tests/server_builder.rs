//! Server builder: custom methods, mounting, pinning a revision, and invalid definitions.

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use linchpin::model::key;
use linchpin::{
    Context, Error, Json, NoArgs, Prompt, Resource, ResourceTemplate, Revision, Server, Tool, args,
};
use serde_json::{Map, Value, json};
use support::{Clock, Peer, STATELESS, failure, fault, initialize, one_shot, session_revisions, stateless};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[args]
struct Add {
    a: i64,
    b: i64,
}

#[args]
struct Id {
    id: u32,
}

fn server() -> Server {
    Server::new("test", "1").tool("add", "", |Add { a, b }| async move { a + b })
}

fn refused(server: Server) -> String {
    server.build().err().expect("the definition is refused").to_string()
}

#[test]
fn methods_of_ones_own() {
    for revision in Revision::ALL {
        let server = server()
            .define_method("x/add", |Add { a, b }| async move {
                json!({"sum": a + b, "_meta": {"example.com/x": 1}})
            })
            .define_method("x/list", || async { Json(vec![1, 2]) })
            .define_method("x/nothing", || async {})
            .define_method("x/fails", || async { Err::<Value, _>(Error::rpc(7, "no")) })
            .define_method("x/waits", |_: NoArgs, cx: Context| async move {
                tokio::task::yield_now().await;
                json!({"id": cx.request_id().to_string()})
            });
        let mut peer = Peer::open(revision, server);
        let sum = peer.result("x/add", json!({"a": 1, "b": 2}));
        assert_eq!((&sum["sum"], &sum["_meta"]["example.com/x"]), (&json!(3), &json!(1)));
        assert_eq!(sum.get("resultType").is_some(), revision == STATELESS);
        let said = (-32602, "Invalid params at /a: invalid type: string \"x\", expected i64".to_owned());
        assert_eq!(peer.error("x/add", json!({"a": "x", "b": 2})), said);
        assert_eq!(peer.error("x/fails", json!({})), (7, "no".into()));
        let id = peer.send("x/waits", json!({}));
        assert_eq!(peer.answer(&id)["result"]["id"], id.to_string());
        peer.result("x/nothing", json!({}));
        assert_eq!(peer.result("x/list", json!({}))["result"], json!([1, 2]), "a result is always an object");
        peer.close();
    }
}

#[test]
fn standard_methods_are_replaced_only_on_purpose() {
    for revision in Revision::ALL {
        let server = server()
            .on_request("tools/list", move |_: Map<String, Value>| async move {
                let mut list = json!({"tools": []});
                if revision == STATELESS {
                    list["ttlMs"] = 0.into();
                    list["cacheScope"] = "private".into();
                }
                list
            })
            .on_request("x/own", || async { json!({"version": 1}) })
            .on_request("x/own", || async { json!({"version": 2}) });
        let mut peer = Peer::open(revision, server);
        assert_eq!(peer.request("x/own", json!({}))["result"]["version"], 2);
        assert_eq!(peer.result("tools/list", json!({}))["tools"], json!([]));
        peer.close();
    }
    for method in ["tools/call", "ping", "notifications/cancelled", "x/own"] {
        let server = server().define_method("x/own", || async {}).define_method(method, || async {});
        assert_eq!(
            refused(server),
            format!("the method `{method}` already exists: use on_request to replace it")
        );
    }
}

#[test]
fn notifications_are_told_to_those_who_ask() {
    for revision in Revision::ALL {
        let (said, heard) = sync_channel(8);
        let (own, standard) = (said.clone(), said);
        let server = server()
            .on_notification("x/told", move |Id { id }, cx: Context| {
                let said = own.clone();
                async move {
                    tokio::task::yield_now().await;
                    said.send(format!("{id} {:?}", cx.client().map(|client| client.name.clone()))).unwrap();
                }
            })
            .on_notification("notifications/initialized", move |_: Map<String, Value>| {
                standard.send("initialized".to_owned()).unwrap();
                std::future::ready(())
            });
        let mut peer = Peer::open(revision, server);
        if revision != STATELESS {
            assert_eq!(heard.recv_timeout(TEST_TIMEOUT).unwrap(), "initialized");
            peer.notify("initialized", Value::Null);
            assert_eq!(heard.recv_timeout(TEST_TIMEOUT).unwrap(), "initialized", "the old spelling");
        }
        peer.notify("x/told", json!({"id": "not a number"}));
        peer.notify("x/told", json!({"id": 7}));
        let name = if revision == STATELESS { "7 None" } else { "7 Some(\"peer\")" };
        assert_eq!(heard.recv_timeout(TEST_TIMEOUT).unwrap(), name);
        peer.alive();
        peer.close();
        assert!(heard.try_recv().is_err(), "undecodable notifications are dropped");
    }
}

fn inner() -> Server {
    Server::new("inner", "2")
        .state("inner state")
        .tool("who", "", |_: NoArgs, cx: Context| async move {
            cx.get::<&'static str>().map_or("nobody", |state| *state)
        })
        .add(Tool::new("slow").timeout(Duration::from_secs(5)).handler(std::future::pending::<()>))
        .tool("add", "", |Add { a, b }| async move { Json(vec![a + b]) })
        .prompt("ask", "", |_: NoArgs, cx: Context| async move {
            cx.get::<&'static str>().map_or("", |state| *state)
        })
        .resource("inner:state", "r", |cx: Context| async move {
            cx.get::<&'static str>().map_or("", |state| *state)
        })
        .resource_template("inner:{id}", "t", |Id { id }| async move { id.to_string() })
}

#[test]
fn a_mounted_server_is_served_under_its_prefix() {
    for revision in Revision::ALL {
        let outer = server().state("outer state").tool("who", "", |_: NoArgs, cx: Context| async move {
            cx.get::<&'static str>().map_or("nobody", |state| *state)
        });
        let mut peer = Peer::open_paused(revision, outer.mount("sub", inner()));
        let list = peer.result("tools/list", json!({}));
        let names: Vec<_> =
            list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, ["add", "who", "sub_who", "sub_slow", "sub_add"]);
        assert_eq!(peer.call_text("who", json!({})), "outer state");
        assert_eq!(peer.call_text("sub_who", json!({})), "inner state");
        assert_eq!(peer.call_text("sub_add", json!({"a": 1, "b": 2})), "[3]");
        let said = failure(&peer.call("sub_add", json!({"a": 1})));
        assert_eq!(said, "Invalid arguments for the tool `sub_add`: missing field `b`");
        assert!(failure(&peer.call("sub_slow", json!({}))).ends_with("did not finish within 5s"));
        let prompt = peer.result("prompts/get", json!({"name": "sub_ask"}));
        assert_eq!(prompt["messages"][0]["content"]["text"], "inner state");
        for (uri, expected) in [("inner:state", "inner state"), ("inner:9", "9")] {
            assert_eq!(peer.result("resources/read", json!({"uri": uri}))["contents"][0]["text"], expected);
        }
        assert_eq!(peer.error("tools/call", json!({"name": "slow"})).0, -32602);
        peer.close();
    }
    assert_eq!(refused(server().mount("", inner())), "duplicate tool `add`");
    assert_eq!(refused(server().mount("s", inner()).mount("s", inner())), "duplicate tool `s_who`");
    assert_eq!(refused(server().mount("a", inner()).mount("b", inner())), "duplicate resource `inner:state`");
    assert!(refused(server().mount("a b", inner())).starts_with("`a b_who` is not a valid name of a tool"));
    let broken = Server::new("inner", "1").tool("", "", || async {});
    assert!(refused(server().mount("sub", broken)).starts_with("`` is not a valid name of a tool"));
}

#[test]
fn a_server_may_speak_one_revision_only() {
    for revision in session_revisions() {
        let service = server().protocol_version(revision.as_str()).build().unwrap();
        let mut peer = Peer::connect(revision, service.clone(), Clock::Real);
        let said = "was sent before initialize: send initialize first";
        // A server of a session revision must not use errors of the stateless era: with such an error, clients that
        // support both would not fall back to initialize.
        for method in ["server/discover", "tools/list"] {
            let request =
                json!({"jsonrpc": "2.0", "id": 90, "method": method, "params": stateless(json!({}))});
            peer.raw(request.to_string());
            assert_eq!(fault(&peer.answer(&json!(90))), (-32600, format!("{method} {said}")));
        }
        let opened = peer.result("initialize", initialize(STATELESS.as_str(), &json!({})));
        assert_eq!(opened["protocolVersion"], revision.as_str());
        peer.alive();
        peer.close();
        let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "a:b"}});
        assert_eq!(fault(&one_shot(&service, &bare).unwrap()).0, -32002, "in its revision");
    }
    let service = server().protocol_version(STATELESS.as_str()).build().unwrap();
    let mut peer = Peer::connect(Revision::LATEST_SESSION, service.clone(), Clock::Real);
    let id = peer.send("initialize", initialize(Revision::LATEST_SESSION.as_str(), &json!({})));
    let answer = peer.answer(&id);
    assert_eq!(fault(&answer).0, -32022);
    assert_eq!(answer["error"]["data"]["supported"], json!([STATELESS.as_str()]));
    let hint = "does not state its revision: put io.modelcontextprotocol/protocolVersion and /clientCapabilities into \
                params._meta";
    for method in ["ping", "tools/list"] {
        assert_eq!(peer.error(method, json!({})), (-32600, format!("{method} {hint}")));
    }
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(fault(&one_shot(&service, &bare).unwrap()), (-32600, format!("tools/list {hint}")));
    let modern = Peer::open_with(STATELESS, service, Clock::Real, &json!({}));
    assert_eq!(modern.opened["supportedVersions"], json!([STATELESS.as_str()]));
    assert!(modern.opened["_meta"].get(key::SERVER_INFO).is_some());

    let known = Revision::ALL.map(Revision::as_str).join(", ");
    let said = format!("unknown protocol revision \"2020-02-02\"; known revisions: {known}");
    assert_eq!(refused(server().protocol_version("2020-02-02")), said);
}

#[args]
struct Nested {
    inner: Vec<String>,
}

#[test]
fn definitions_that_make_no_sense_are_refused_in_words() {
    let tool = |name: &str| server().tool(name, "", || async {});
    let named = |name: &str| {
        format!(
            "`{name}` is not a valid name of a tool: use 1 to 128 letters, digits, underscores, hyphens and dots"
        )
    };
    let prompt =
        |prompt: Prompt| server().add(prompt.handler(|_: BTreeMap<String, String>| async { "never" }));
    let template =
        |text: &str| server().resource_template(text, "t", |Id { id }| async move { id.to_string() });
    let long = "x".repeat(129);
    let cases = [
        (tool("add"), "duplicate tool `add`".to_owned()),
        (tool("a b"), named("a b")),
        (tool(""), named("")),
        (tool("é"), named("é")),
        (tool(&long), named(&long)),
        (prompt(Prompt::new("")), "the prompt `` cannot be registered: its name is empty".into()),
        (
            prompt(Prompt::new("p").argument("a", "", true).argument("a", "", false)),
            "the prompt `p` cannot be registered: the argument `a` is declared twice".into(),
        ),
        (
            server().add(Prompt::new("p").argument("id", "", true).handler(|_: Id| async { "never" })),
            "the prompt `p` cannot be registered: the argument `id` is declared twice".into(),
        ),
        (
            prompt(Prompt::new("p").argument("", "", true)),
            "the prompt `p` cannot be registered: one of its arguments has an empty name".into(),
        ),
        (
            prompt(Prompt::new("p").complete("b", |_: String| async { vec!["x"] })),
            "the prompt `p` cannot be registered: there is a completion for `b`, which is not an argument of the prompt".into(),
        ),
        (
            server().prompt("p", "", |nested: Nested| async move { nested.inner.concat() }),
            "the prompt `p` cannot be registered: the field `inner` must be a string, a number, a boolean or an \
             enum of strings"
                .into(),
        ),
        (
            server().prompt("p", "", || async { "" }).prompt("p", "", || async { "" }),
            "duplicate prompt `p`".into(),
        ),
        (
            server().resource("status", "s", || async { "" }),
            "the resource `status` cannot be registered: the URI has no scheme".into(),
        ),
        (
            server().resource("a:b", "s", || async { "" }).add(Resource::new("a:b", "t").handler(|| async { "" })),
            "duplicate resource `a:b`".into(),
        ),
        (template("a:{id"), "the resource template `a:{id` cannot be registered: unmatched {: add the closing }".into()),
        (
            template("a:{name}"),
            "the resource template `a:{name}` cannot be registered: its handler takes `id`, which is not a variable of the template"
                .into(),
        ),
        (
            server().add(
                ResourceTemplate::new("a:{id}", "t")
                    .complete("x", |_: String| async { vec!["y"] })
                    .handler(|| async { "never" }),
            ),
            "the resource template `a:{id}` cannot be registered: there is a completion for `x`, which is not a variable of the template"
                .into(),
        ),
    ];
    for (server, expected) in cases {
        assert_eq!(refused(server), expected);
    }
    let first = server().tool("a b", "", || async {}).tool("add", "", || async {});
    assert_eq!(refused(first), named("a b"), "the first error is reported");
}

#[test]
fn parameters_that_are_mirrored_into_headers() {
    for revision in Revision::ALL {
        let schema = json!({"type": "object", "properties": {"region": {"type": "string"}}});
        let server = Server::new("test", "1")
            .add(Tool::new("typed").header("b", "B-Number").handler(|Add { a, b }| async move { a + b }))
            .add(
                Tool::raw("raw", schema).header("region", "Region").handler(|_: Map<String, Value>| async {}),
            );
        let mut peer = Peer::open(revision, server);
        let tools = peer.result("tools/list", json!({}))["tools"].clone();
        let marks =
            |tool: usize, property: &str| &tools[tool]["inputSchema"]["properties"][property]["x-mcp-header"];
        assert_eq!(*marks(0, "b"), "B-Number");
        assert_eq!(*marks(0, "a"), Value::Null);
        assert_eq!(*marks(1, "region"), "Region");
        let sum = peer.result("tools/call", json!({"name": "typed", "arguments": {"a": 1, "b": 2}}));
        assert_eq!(sum["content"][0]["text"], "3");
        peer.close();
    }
}

#[test]
fn parameters_that_cannot_be_mirrored_are_refused() {
    let add =
        |tool: Tool| refused(Server::new("test", "1").add(tool.handler(|Add { a, b }| async move { a + b })));
    assert_eq!(
        add(Tool::new("add").header("c", "C")),
        "the tool `add` cannot be registered: the header `C` is for the parameter `c`, which the tool \
         does not have: its parameters are `a`, `b`"
    );
    assert!(
        add(Tool::new("add").header("a", "A").header("b", "a"))
            .contains("the parameter `a` already has this header")
    );
    assert!(add(Tool::new("add").header("a", "A b")).contains("must consist of letters"));
    let schema = json!({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
    let raw = Tool::raw("raw", schema).handler(|_: Map<String, Value>| async {});
    assert_eq!(
        refused(Server::new("test", "1").add(raw)),
        "the tool `raw` cannot be registered: the `x-mcp-header` at /properties/a of the input schema is invalid: the \
         type of the parameter must be `string`, `integer` or `boolean`"
    );
}
