//! Hooks: instrumentation, error reporter, layers and visibility.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::{Arc, Mutex};

use linchpin::server::{DefinitionRef, Next, Request, Response};
use linchpin::{
    Context, Error, NoArgs, Prompt, Resource, ResourceTemplate, Result, Revision, Server, Service, Tool, args,
};
use serde_json::{Map, Value, json};
use support::{Clock, Peer, STATELESS, failure, fault, initialize, stateless, text};

#[args]
struct Add {
    a: i64,
    b: i64,
}

/// Recorded events, in order.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn broken() -> Result<String> {
    Ok(std::fs::read_to_string("/no/such/file")?)
}

fn server() -> Server {
    Server::new("test", "1")
        .state(7_u32)
        .tool("add", "", |Add { a, b }| async move { a + b })
        .tool("foreign", "", || async { broken() })
        .tool("late", "", || async {
            tokio::task::yield_now().await;
            broken()
        })
        .tool("said", "", || async { Err::<(), _>(Error::tool("disk full")) })
        .tool("rpc", "", || async { Err::<(), _>(Error::rpc_with(42, "no", json!({"why": "so"}))) })
        .tool("gone", "", || async { Err::<(), _>(Error::resource_not_found("a:gone")) })
        .tool("needs", "", || async { Err::<(), _>(Error::missing_capability(json!({"sampling": {}}))) })
        .resource("a:foreign", "foreign", || async { broken() })
        .resource("a:said", "said", || async { Err::<String, _>(Error::tool("disk full")) })
        .prompt("foreign", "", || async { broken() })
}

#[test]
fn errors_become_what_the_revision_has_for_them() {
    let internal = |tool: &str| format!("The tool `{tool}` failed because of an internal error.");
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        for tool in ["foreign", "late"] {
            assert_eq!(failure(&peer.call(tool, json!({}))), internal(tool));
        }
        assert_eq!(failure(&peer.call("said", json!({}))), "disk full");
        let id = peer.send("tools/call", json!({"name": "rpc"}));
        assert_eq!(peer.answer(&id)["error"], json!({"code": 42, "message": "no", "data": {"why": "so"}}));
        let not_found = if revision == STATELESS { -32602 } else { -32002 };
        let gone = peer.error("tools/call", json!({"name": "gone"}));
        assert_eq!(gone, (not_found, "Resource not found: a:gone".into()));
        let id = peer.send("tools/call", json!({"name": "needs"}));
        let needs = peer.answer(&id);
        assert_eq!(fault(&needs).0, if revision == STATELESS { -32021 } else { -32600 });
        assert_eq!(needs["error"]["data"], json!({"requiredCapabilities": {"sampling": {}}}));
        for (method, params) in
            [("resources/read", json!({"uri": "a:foreign"})), ("prompts/get", json!({"name": "foreign"}))]
        {
            assert_eq!(peer.error(method, params), (-32603, "Internal error".into()));
        }
        assert_eq!(peer.error("resources/read", json!({"uri": "a:said"})), (-32603, "disk full".into()));
        peer.close();
    }
}

/// Sends the same requests to a plain server and to one with a layer that changes nothing.
fn with_and_without_layers(watched: impl Fn() -> Server) -> [Service; 2] {
    let layered = watched().layer(|request, next| next.run(request));
    [watched().build().unwrap(), layered.build().unwrap()]
}

#[test]
fn instrumentation_is_told_of_every_request() {
    let seen = EventLog::default();
    let watched = || {
        let seen = seen.clone();
        server().instrument(move |event| {
            let state = event.get::<u32>().map_or(0, |state| *state);
            seen.note(format!(
                "{} {:?} {:?} {} {state}",
                event.method, event.target, event.error, event.tool_error
            ));
        })
    };
    for service in with_and_without_layers(watched) {
        let mut peer = Peer::connect(Revision::LATEST_SESSION, service, Clock::Real);
        peer.error("tools/list", json!({}));
        peer.result("initialize", initialize(Revision::LATEST_SESSION.as_str(), &json!({})));
        peer.call("add", json!({"a": 1, "b": 2}));
        peer.call("add", json!({"a": "one"}));
        peer.call("foreign", json!({}));
        peer.call("late", json!({}));
        peer.error("tools/call", json!({"name": "rpc"}));
        peer.error("tools/call", json!({"name": "made up"}));
        peer.error("tools/call", json!({"_meta": 7}));
        peer.error("resources/read", json!({"uri": "a:foreign"}));
        peer.error("resources/read", json!({"uri": "a:secret"}));
        peer.error("prompts/get", json!({"name": "foreign"}));
        peer.error("made/up", json!({}));
        peer.result("ping", json!({}));
        peer.close();
        let expected = [
            "tools/list None Some(-32600) false 7",
            "initialize None None false 7",
            "tools/call Some(\"add\") None false 7",
            "tools/call Some(\"add\") None true 7",
            "tools/call Some(\"foreign\") None true 7",
            "tools/call Some(\"late\") None true 7",
            "tools/call Some(\"rpc\") Some(42) false 7",
            "tools/call None Some(-32602) false 7",
            "tools/call None Some(-32602) false 7",
            "resources/read Some(\"a:foreign\") Some(-32603) false 7",
            "resources/read None Some(-32002) false 7",
            "prompts/get Some(\"foreign\") Some(-32603) false 7",
            "made/up None Some(-32601) false 7",
            "ping None None false 7",
        ];
        assert_eq!(seen.take(), expected);
    }
}

#[test]
fn the_reporter_gets_the_detail_that_clients_do_not() {
    let seen = EventLog::default();
    let watched = || {
        let seen = seen.clone();
        server().on_error(move |report| {
            let state = report.get::<u32>().map_or(0, |state| *state);
            seen.note(format!("{} {:?} {} {state}", report.method, report.target, report.error));
        })
    };
    for service in with_and_without_layers(watched) {
        let mut peer = Peer::open_with(STATELESS, service, Clock::Real, &json!({}));
        for tool in ["foreign", "late"] {
            failure(&peer.call(tool, json!({})));
        }
        peer.error("resources/read", json!({"uri": "a:foreign"}));
        peer.error("prompts/get", json!({"name": "foreign"}));
        failure(&peer.call("said", json!({})));
        peer.error("tools/call", json!({"name": "rpc"}));
        peer.error("resources/read", json!({"uri": "a:none"}));
        peer.close();
        let detail = "No such file or directory (os error 2) 7";
        let expected = [
            format!("tools/call Some(\"foreign\") {detail}"),
            format!("tools/call Some(\"late\") {detail}"),
            format!("resources/read Some(\"a:foreign\") {detail}"),
            format!("prompts/get Some(\"foreign\") {detail}"),
        ];
        assert_eq!(seen.take(), expected, "each error once, without those that the client received");
    }
}

#[test]
fn layers_do_not_change_what_they_let_through() {
    let [plain, layered] = with_and_without_layers(server);
    for revision in Revision::ALL {
        let mut peers = [&plain, &layered]
            .map(|service| Peer::open_with(revision, service.clone(), Clock::Real, &json!({})));
        let calls = ["add", "foreign", "late", "said", "rpc", "gone", "needs", "none"]
            .map(|name| ("tools/call", json!({"name": name})));
        let others = [
            ("tools/list", json!({})),
            ("tools/call", json!({"name": "add", "arguments": {"a": 1, "b": 2}})),
            ("resources/read", json!({"uri": "a:foreign"})),
            ("prompts/get", json!({"name": "foreign"})),
            ("made/up", json!({})),
        ];
        for (method, params) in calls.into_iter().chain(others) {
            let [expected, answer] = peers.each_mut().map(|peer| peer.request(method, params.clone()));
            assert_eq!(answer, expected, "{method} {params} in {revision}");
        }
        peers.into_iter().for_each(Peer::close);
    }
}

#[test]
fn layers_see_change_refuse_and_answer() {
    let seen = EventLog::default();
    let (outer, inner) = (seen.clone(), seen.clone());
    let server = server()
        .layer(move |request: Request, next: Next| {
            let seen = outer.clone();
            async move {
                let what = format!("{} {:?}", request.method(), request.target());
                seen.note(format!("outer {what}"));
                if request.target().as_deref() == Some("said") {
                    return Err(Error::rpc(403, "not you"));
                }
                let id = request.context().request_id().clone();
                let response = next.run(request).await?;
                seen.note(format!("outer {id} {}", response.to_json()["content"]));
                Ok(response)
            }
        })
        .layer(move |mut request: Request, next: Next| {
            let seen = inner.clone();
            async move {
                seen.note(format!("inner {}", request.params()["arguments"]));
                if request.target().as_deref() == Some("gone") {
                    return Response::json(&json!({"content": [{"type": "text", "text": "here"}]}));
                }
                let mut params: Map<String, Value> = request.params().as_object().cloned().unwrap();
                params.insert("arguments".into(), json!({"a": 40, "b": 2}));
                request.set_params(&params);
                next.run(request).await
            }
        });
    let mut peer = Peer::connect(STATELESS, server.build().unwrap(), Clock::Real);
    assert_eq!(peer.call_text("add", json!({"a": 1, "b": 1})), "42");
    let block = r#"[{"type":"text","text":"42"}]"#;
    let expected = ["outer tools/call Some(\"add\")", "inner {\"a\":1,\"b\":1}", &format!("outer 1 {block}")];
    assert_eq!(seen.take(), expected);
    assert_eq!(peer.error("tools/call", json!({"name": "said"})), (403, "not you".into()));
    assert_eq!(peer.call_text("gone", json!({})), "here");
    peer.close();
}

#[test]
fn what_is_not_visible_does_not_exist() {
    let hide = |item: DefinitionRef<'_>, cx: &Context| {
        !item.name().contains("secret") || cx.meta().contains_key("example.com/admin")
    };
    let server = || {
        Server::new("test", "1")
            .visible(hide)
            .tool("open", "", || async { "open" })
            .tool("secret", "", || async { "secret" })
            .add(Resource::new("a:open", "open").handler(|| async { "open" }))
            .add(Resource::new("a:secret", "secret").handler(|| async { "secret" }))
            .add(
                ResourceTemplate::new("secret:{x}", "secret")
                    .complete("x", |_: String| async { vec!["y"] })
                    .handler(|| async { "secret" }),
            )
            .add(
                Prompt::new("secret")
                    .argument("a", "", false)
                    .complete("a", |_: String| async { vec!["y"] })
                    .handler(|| async { "secret" }),
            )
    };
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let argument = |name: &str| json!({"name": name, "value": ""});
        let asked = [
            ("tools/call", json!({"name": "secret"})),
            ("resources/read", json!({"uri": "a:secret"})),
            ("resources/read", json!({"uri": "secret:y"})),
            ("prompts/get", json!({"name": "secret"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "secret"}, "argument": argument("a")}),
            ),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/resource", "uri": "secret:{x}"}, "argument": argument("x")}),
            ),
            ("resources/subscribe", json!({"uri": "a:secret"})),
        ];
        for (method, mut params) in
            asked.into_iter().filter(|(method, _)| revision != STATELESS || !method.contains("subscribe"))
        {
            let missing = peer.request(method, params.clone());
            assert!(missing.get("error").is_some(), "{method} {params} in {revision}: {missing}");
            params["_meta"] = json!({"example.com/admin": true});
            let there = peer.request(method, params);
            assert!(there.get("result").is_some(), "{there}");
        }
        for (method, member, count) in [
            ("tools/list", "tools", 1),
            ("resources/list", "resources", 1),
            ("resources/templates/list", "resourceTemplates", 0),
            ("prompts/list", "prompts", 0),
        ] {
            let list = |peer: &mut Peer, params: Value| {
                peer.result(method, params)[member].as_array().unwrap().len()
            };
            assert_eq!(list(&mut peer, json!({})), count);
            assert_eq!(
                list(&mut peer, json!({"_meta": {"example.com/admin": true}})),
                if count == 1 { 2 } else { 1 }
            );
        }
        peer.close();
    }
}

#[test]
fn a_mounted_server_keeps_its_state_behind_layers_and_visibility() {
    let mounted = || {
        let tool = Tool::new("state")
            .handler(|_: NoArgs, cx: Context| async move { cx.get::<u32>().map_or(0, |n| *n) });
        Server::new("inner", "1").state(2_u32).add(tool)
    };
    let outer = || Server::new("outer", "1").state(1_u32).mount("sub", mounted());
    for server in [outer(), outer().layer(|request, next| next.run(request)), outer().visible(|_, _| true)] {
        let service = server.build().unwrap();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": stateless(json!({"name": "sub_state"}))});
        assert_eq!(text(&support::one_shot(&service, &request).unwrap()["result"]), "2");
    }
}
