//! Changes while the server runs: which clients are notified, in both eras; and paginated lists.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::model::key;
use linchpin::{
    NoArgs, Prompt, Resource, ResourceTemplate, Revision, Server, ServerHandle, Service, Tool, args,
};
use serde_json::{Value, json};
use support::{Clock, Peer, STATELESS, fault, initialize, session_revisions};

#[args]
struct Path {
    path: String,
}

fn tool(name: &str) -> impl linchpin::server::Register {
    Tool::new(name).handler(|| async { "new" })
}

fn prompt(name: &str) -> impl linchpin::server::Register {
    Prompt::new(name).handler(|| async { "new" })
}

fn resource(uri: &str) -> impl linchpin::server::Register {
    Resource::new(uri, "new").handler(|| async { "new" })
}

fn template(uri: &str) -> impl linchpin::server::Register {
    ResourceTemplate::new(uri, "new").handler(|Path { path }| async move { path })
}

fn service() -> (Service, ServerHandle) {
    let mut server = Server::new("test", "1").add(resource("a:1"));
    let handle = server.handle();
    // All changes arrive together: the handler runs on the only thread of the runtime.
    let many = handle.clone();
    let server = server.tool("many", "", move |_: NoArgs| {
        let handle = many.clone();
        async move {
            tokio::task::yield_now().await;
            for number in 0..10 {
                handle.add(tool(&format!("t{number}"))).unwrap();
            }
            handle.add(prompt("p")).unwrap();
            handle.remove_tool("t0")
        }
    });
    (server.build().unwrap(), handle)
}

fn open(revision: Revision, service: &Service) -> Peer {
    Peer::open_with(revision, service.clone(), Clock::Real, &json!({}))
}

fn listen(peer: &mut Peer, filter: &Value) -> (Value, Value) {
    let id = peer.send("subscriptions/listen", json!({"notifications": filter}));
    let acknowledged = peer.read();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["_meta"], json!({key::SUBSCRIPTION_ID: id}));
    (id, acknowledged["params"]["notifications"].clone())
}

/// A change and its notification.
type Change<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// Changes of each kind.
fn changes(handle: &ServerHandle) -> [Change<'_>; 10] {
    let told = [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ];
    [
        (told[0], Box::new(|| handle.add(tool("t")).unwrap())),
        (told[1], Box::new(|| handle.add(prompt("p")).unwrap())),
        (told[2], Box::new(|| handle.add(resource("b:1")).unwrap())),
        (told[2], Box::new(|| handle.add(template("c:{path}")).unwrap())),
        (told[0], Box::new(|| assert!(handle.remove_tool("t") && !handle.remove_tool("t")))),
        (told[1], Box::new(|| assert!(handle.remove_prompt("p") && !handle.remove_prompt("p")))),
        (told[2], Box::new(|| assert!(handle.remove_resource("c:{path}")))),
        (told[2], Box::new(|| assert!(handle.remove_resource("b:1") && !handle.remove_resource("b:1")))),
        (told[1], Box::new(|| handle.prompts_changed())),
        (told[0], Box::new(|| handle.tools_changed())),
    ]
}

#[test]
fn sessions_are_told_of_changes() {
    for revision in session_revisions() {
        let (service, handle) = service();
        let mut peer = open(revision, &service);
        for (method, change) in changes(&handle) {
            change();
            assert_eq!(peer.read(), json!({"jsonrpc": "2.0", "method": method}), "{revision}");
        }
        peer.close();
    }
}

#[test]
fn what_was_added_can_be_used_and_what_was_removed_is_gone() {
    for revision in Revision::ALL {
        let (service, handle) = service();
        let mut peer = Peer::connect(revision, service, Clock::Real);
        if revision != STATELESS {
            peer.result("initialize", initialize(revision.as_str(), &json!({})));
        }
        let unknown = (-32602, "Invalid params at /name: Unknown tool: t".to_owned());
        assert_eq!(peer.error("tools/call", json!({"name": "t"})), unknown);
        handle.add(tool("t")).unwrap();
        assert_eq!(handle.add(tool("t")).unwrap_err().to_string(), "duplicate tool `t`");
        assert_eq!(peer.call_text("t", json!({})), "new");
        assert_eq!(peer.result("tools/list", json!({}))["tools"][1]["name"], "t");
        assert!(handle.remove_tool("t"));
        assert_eq!(peer.error("tools/call", json!({"name": "t"})), unknown);
        assert_eq!(peer.result("tools/list", json!({}))["tools"].as_array().unwrap().len(), 1);
        peer.close();
    }
}

#[test]
fn changes_that_come_together_are_told_once() {
    for revision in Revision::ALL {
        let (service, _) = service();
        let mut peer = open(revision, &service);
        if revision == STATELESS {
            listen(&mut peer, &json!({"toolsListChanged": true, "promptsListChanged": true}));
        }
        assert_eq!(peer.call_text("many", json!({})), "true");
        assert_eq!(peer.read()["method"], "notifications/tools/list_changed", "{revision}");
        assert_eq!(peer.read()["method"], "notifications/prompts/list_changed", "{revision}");
        assert_eq!(peer.result("tools/list", json!({}))["tools"].as_array().unwrap().len(), 10);
        if revision != STATELESS {
            peer.close();
        }
    }
}

#[test]
fn nobody_is_told_before_the_session_is_open_or_without_asking() {
    let (service, handle) = service();
    let mut early = Peer::connect(Revision::LATEST_SESSION, service.clone(), Clock::Real);
    early.result("initialize", initialize(Revision::LATEST_SESSION.as_str(), &json!({})));
    let mut silent = open(STATELESS, &service);
    let (_, nothing) = listen(&mut silent, &json!({}));
    assert_eq!(nothing, json!({}));
    listen(&mut silent, &json!({"promptsListChanged": true, "resourceSubscriptions": ["a:1"]}));
    let mut last = open(Revision::LATEST_SESSION, &service);
    handle.add(tool("t")).unwrap();
    assert_eq!(last.read()["method"], "notifications/tools/list_changed", "the others were skipped");
    early.alive();
    silent.alive();
    early.close();
}

#[test]
fn streams_carry_what_was_asked_for() {
    let (service, handle) = service();
    let mut peer = open(STATELESS, &service);
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let (id, acknowledged) = listen(&mut peer, &all);
    assert_eq!(acknowledged, all);
    for (method, change) in changes(&handle) {
        change();
        let expected =
            json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": {key::SUBSCRIPTION_ID: id}}});
        assert_eq!(peer.read(), expected);
    }
    let (second, _) = listen(&mut peer, &json!({"toolsListChanged": true, "promptsListChanged": false}));
    handle.tools_changed();
    let mut told =
        [peer.read(), peer.read()].map(|told| told["params"]["_meta"][key::SUBSCRIPTION_ID].clone());
    told.sort_by_key(Value::as_i64);
    assert_eq!(told, [id, second], "each stream is notified");
}

#[test]
fn only_what_the_server_can_do_is_acknowledged() {
    let wish = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["a:1", "a:2", "c:x"],
    });
    let cases = [
        (Server::new("test", "1"), json!({})),
        (Server::new("test", "1").add(tool("t")), json!({"toolsListChanged": true})),
        (
            Server::new("test", "1").add(resource("a:1")).add(template("c:{path}")),
            json!({"resourcesListChanged": true, "resourceSubscriptions": ["a:1", "c:x"]}),
        ),
        (
            Server::new("test", "1")
                .add(resource("a:1"))
                .add(prompt("p"))
                .visible(|item, _| item.name() != "a:1"),
            json!({"promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": []}),
        ),
    ];
    for (server, expected) in cases {
        let mut peer = Peer::open(STATELESS, server);
        assert_eq!(listen(&mut peer, &wish).1, expected);
    }
}

#[test]
fn a_stream_ends_when_the_client_gives_it_up() {
    let (service, handle) = service();
    let mut peer = open(STATELESS, &service);
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:1"]});
    let (first, _) = listen(&mut peer, &filter);
    let (second, _) = listen(&mut peer, &filter);
    peer.notify("notifications/cancelled", json!({"requestId": first}));
    peer.alive();
    handle.resource_updated("a:1");
    handle.tools_changed();
    for method in ["notifications/resources/updated", "notifications/tools/list_changed"] {
        let told = peer.read();
        assert_eq!(
            (&told["method"], &told["params"]["_meta"][key::SUBSCRIPTION_ID]),
            (&json!(method), &second)
        );
    }
    let (rest, ended) = peer.end();
    ended.unwrap();
    assert_eq!(rest.len(), 1, "only the open stream has a response: {rest:?}");
}

#[test]
fn streams_end_in_good_order_with_the_input() {
    let (service, _) = service();
    let mut peer = open(STATELESS, &service);
    let (first, _) = listen(&mut peer, &json!({"toolsListChanged": true}));
    let second = json!("a string");
    let mut request = peer.message("subscriptions/listen", json!({"notifications": {}}));
    request["id"] = second.clone();
    peer.raw(request.to_string());
    assert_eq!(peer.read()["params"]["_meta"][key::SUBSCRIPTION_ID], second);
    let (rest, ended) = peer.end();
    ended.unwrap();
    let mut ids = Vec::new();
    for answer in &rest {
        assert_eq!(answer["result"]["resultType"], "complete");
        assert_eq!(answer["result"]["_meta"][key::SUBSCRIPTION_ID], answer["id"]);
        ids.push(answer["id"].clone());
    }
    ids.sort_by_key(Value::is_string);
    assert_eq!(ids, [first, second]);
}

#[test]
fn sessions_subscribe_to_resources() {
    for revision in session_revisions() {
        let (service, handle) = service();
        let mut peer = open(revision, &service);
        let missing = peer.send("resources/subscribe", json!({"uri": "a:2"}));
        assert_eq!(fault(&peer.answer(&missing)), (-32002, "Resource not found: a:2".into()));
        handle.resource_updated("a:1");
        assert_eq!(
            peer.result("resources/subscribe", json!({"uri": "a:1"})),
            json!({}),
            "no earlier notification"
        );
        peer.result("resources/subscribe", json!({"uri": "a:1"}));
        handle.resource_updated("a:2");
        handle.resource_updated("a:1");
        let told =
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:1"}});
        assert_eq!(peer.read(), told, "once, however often it was subscribed to");
        assert_eq!(peer.result("resources/unsubscribe", json!({"uri": "a:1"})), json!({}));
        handle.resource_updated("a:1");
        assert_eq!(peer.result("resources/unsubscribe", json!({"uri": "b:1"})), json!({}));
        peer.close();
    }
}

#[test]
fn streams_subscribe_to_resources() {
    let (service, handle) = service();
    let mut peer = open(STATELESS, &service);
    let (id, _) = listen(&mut peer, &json!({"resourceSubscriptions": ["a:1", "a:2"]}));
    handle.resource_updated("a:2");
    handle.resource_updated("a:1");
    let params = json!({"uri": "a:1", "_meta": {key::SUBSCRIPTION_ID: id}});
    assert_eq!(peer.read()["params"], params);
    peer.alive();
}

/// Reads all pages of a list: the names, and the cursor after each page.
fn pages(peer: &mut Peer, method: &str, member: &str, name: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({"cursor": cursor}));
        let page = peer.result(method, params);
        let names =
            page[member].as_array().unwrap().iter().map(|item| item[name].as_str().unwrap().to_owned());
        pages.push(names.collect());
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => return pages,
        }
    }
}

#[test]
fn lists_come_in_pages() {
    for revision in Revision::ALL {
        let mut server = Server::new("test", "1").page_size(2);
        for number in 1..=5 {
            server = server.add(tool(&format!("t{number}"))).add(prompt(&format!("p{number}")));
            server =
                server.add(resource(&format!("r:{number}"))).add(template(&format!("s{number}:{{path}}")));
        }
        let service = server.build().unwrap();
        let mut peer = Peer::connect(revision, service.clone(), Clock::Real);
        if revision != STATELESS {
            peer.result("initialize", initialize(revision.as_str(), &json!({})));
        }
        assert_eq!(
            pages(&mut peer, "tools/list", "tools", "name"),
            [vec!["t1", "t2"], vec!["t3", "t4"], vec!["t5"]]
        );
        assert_eq!(pages(&mut peer, "prompts/list", "prompts", "name")[2], ["p5"]);
        assert_eq!(pages(&mut peer, "resources/list", "resources", "uri")[1], ["r:3", "r:4"]);
        let templates = pages(&mut peer, "resources/templates/list", "resourceTemplates", "uriTemplate");
        assert_eq!(templates[2], ["s5:{path}"]);

        let cursor = peer.result("tools/list", json!({}))["nextCursor"].clone();
        let handle = service.handle();
        assert!(handle.remove_tool("t1") && handle.remove_tool("t3"));
        handle.add(tool("t6")).unwrap();
        let rest = peer.result("tools/list", json!({"cursor": cursor}));
        assert_eq!(
            (&rest["tools"][0]["name"], &rest["tools"][1]["name"]),
            (&json!("t4"), &json!("t5")),
            "{revision}"
        );
        let said = "Invalid params at /cursor: unknown cursor: start again without a cursor";
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            for cursor in ["made up", "", "-1", "999"] {
                assert_eq!(
                    peer.error(method, json!({"cursor": cursor})),
                    (-32602, said.into()),
                    "{method} {cursor}"
                );
            }
        }
        peer.close();
    }
}
