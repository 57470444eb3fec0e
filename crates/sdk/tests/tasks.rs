//! Tasks of the core protocol: the client requests a task, polls it, and fetches the result. Also task requests in
//! every revision, and tools that run only as tasks.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::model::{extension, key};
use linchpin::{Revision, Server, Service};
use serde_json::{Value, json};
use support::task_server::TaskControls;
use support::{Clock, Peer, STATELESS, failure, fault, text};

const CORE: Revision = Revision::ALL[3];

fn open(service: &Service) -> Peer {
    Peer::open_with(CORE, service.clone(), Clock::Real, &json!({"elicitation": {}}))
}

/// Returns the response to a request, and the notifications before it.
fn answered(peer: &mut Peer, id: &Value) -> (Value, Vec<Value>) {
    let mut told = Vec::new();
    loop {
        let line = peer.read();
        if line.get("method").is_none() {
            assert_eq!(line["id"], *id, "{line}");
            return (line, told);
        }
        told.push(line);
    }
}

fn ask(peer: &mut Peer, method: &str, params: Value) -> Value {
    let id = peer.send(method, params);
    answered(peer, &id).0
}

fn result(peer: &mut Peer, method: &str, params: Value) -> Value {
    let mut answer = ask(peer, method, params);
    assert!(answer.get("result").is_some(), "{method}: {answer}");
    answer["result"].take()
}

/// Starts a task and returns its id.
fn begin(peer: &mut Peer, tool: &str) -> Value {
    let task = result(peer, "tools/call", json!({"name": tool, "task": {}}))["task"].take();
    assert_eq!(task["status"], "working", "{task}");
    task["taskId"].clone()
}

/// Reads until a notification reports this status of the task.
fn told(peer: &mut Peer, id: &Value, status: &str) -> Value {
    loop {
        let line = peer.read();
        assert_eq!(line["method"], "notifications/tasks/status", "{line}");
        if line["params"]["status"] == status {
            assert_eq!(line["params"]["taskId"], *id);
            return line["params"].clone();
        }
    }
}

#[test]
fn tasks_are_announced_in_the_form_of_the_revision() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, TaskControls::new().server());
        let can = &peer.opened["capabilities"];
        let core = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        assert_eq!(can.get("tasks"), (revision == CORE).then_some(&core), "{revision}");
        let extended = can["extensions"].get(extension::TASKS);
        assert_eq!(extended, (revision == STATELESS).then_some(&json!({})), "{revision}");
        let tools = peer.result("tools/list", json!({}));
        for tool in tools["tools"].as_array().unwrap() {
            let said = tool.get("execution").map(|execution| execution["taskSupport"].as_str().unwrap());
            let support = match tool["name"].as_str().unwrap() {
                "plain" => None,
                "quick" | "slow" => Some("optional"),
                _ => Some("required"),
            };
            assert_eq!(said, support.filter(|_| revision == CORE), "{tool} in {revision}");
        }
        peer.close();
        let mut peer = Peer::open(revision, Server::new("none", "1").tool("plain", "", || async { "plain" }));
        let can = peer.opened["capabilities"].clone();
        assert_eq!((can.get("tasks"), can.get("extensions")), (None, None), "{revision}");
        assert_eq!(
            peer.error("tasks/get", json!({"taskId": "t"})).0,
            -32601,
            "{revision}: tasks are not supported"
        );
        let params = json!({"name": "plain", "task": {"ttl": 1}});
        assert_eq!(text(&peer.result("tools/call", params)), "plain", "the task request is ignored");
        peer.close();
    }
}

#[test]
fn a_wish_for_a_task_means_something_in_one_revision() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision < CORE) {
        let mut peer = Peer::open(revision, TaskControls::new().server());
        for tool in ["plain", "quick", "must"] {
            assert_eq!(peer.call_text(tool, json!({})), tool, "{revision}");
            let params = json!({"name": tool, "task": {"ttl": 1}});
            assert_eq!(text(&peer.result("tools/call", params)), tool, "{revision}");
        }
        for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"] {
            assert_eq!(peer.error(method, json!({"taskId": "t"})).0, -32601, "{method} in {revision}");
        }
        peer.close();
    }
    let mut peer = Peer::open(CORE, TaskControls::new().server());
    assert_eq!(peer.call_text("quick", json!({})), "quick");
    let (code, message) = peer.error("tools/call", json!({"name": "plain", "task": {}}));
    assert_eq!(code, -32601);
    assert!(message.contains("`plain` cannot run as a task"), "{message}");
    let (code, message) = peer.error("tools/call", json!({"name": "must"}));
    assert_eq!(code, -32601);
    assert!(message.contains("`must` runs only as a task"), "{message}");
    for wrong in [json!({"ttl": "long"}), json!({"ttl": -1}), json!(3)] {
        assert_eq!(peer.error("tools/call", json!({"name": "quick", "task": wrong})).0, -32602, "{wrong}");
    }
    assert_eq!(peer.error("tools/call", json!({"name": "nobody", "task": {}})).0, -32602);
    assert_eq!(peer.error("tasks/update", json!({"taskId": "t", "inputResponses": {}})).0, -32601);
    peer.close();
}

#[test]
fn a_task_is_looked_at_and_its_result_is_fetched() {
    let works = TaskControls::new();
    let mut peer = open(&works.server().build().unwrap());
    let params = json!({"name": "slow", "task": {"ttl": 60_000}, "_meta": {"progressToken": "p"}});
    let task = result(&mut peer, "tools/call", params)["task"].take();
    assert_eq!(
        (&task["status"], &task["ttl"], &task["pollInterval"]),
        (&json!("working"), &json!(60_000), &json!(1000))
    );
    let id = task["taskId"].clone();
    let progress = peer.read();
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    assert_eq!(progress["params"]["_meta"][key::RELATED_TASK], json!({"taskId": id}));
    let seen = result(&mut peer, "tasks/get", json!({"taskId": id}));
    assert_eq!((&seen["status"], &seen["taskId"]), (&json!("working"), &id));
    let fetch = peer.send("tasks/result", json!({"taskId": id}));
    let look = peer.send("tasks/get", json!({"taskId": id}));
    let seen = peer.answer(&look); // the result is pending and does not block other requests
    assert_eq!(seen["result"]["status"], "working");
    works.gate.add_permits(1);
    let mut lines = [peer.read(), peer.read()]; // the notification and the result, in any order
    lines.sort_by_key(|line| line.get("method").is_some());
    let [fetched, notice] = lines;
    assert_eq!(notice["params"]["status"], "completed", "{notice}");
    assert!(notice["params"].get("_meta").is_none(), "{notice}");
    assert_eq!(fetched["id"], fetch);
    assert_eq!(text(&fetched["result"]), "done at last");
    assert_eq!(fetched["result"]["_meta"][key::RELATED_TASK], json!({"taskId": id}));
    for _ in 0..2 {
        assert_eq!(text(&result(&mut peer, "tasks/result", json!({"taskId": id}))), "done at last");
    }
    let seen = result(&mut peer, "tasks/get", json!({"taskId": id}));
    assert_eq!(seen["status"], "completed");
    assert!(seen.get("result").is_none() && seen.get("_meta").is_none(), "{seen}");
    let long =
        result(&mut peer, "tools/call", json!({"name": "must", "task": {"ttl": 1_000_000_000_000_u64}}));
    assert_eq!(long["task"]["ttl"], 24 * 60 * 60 * 1000, "the time to live is at most a day");
    drop(peer.end());
}

#[test]
fn a_task_asks_by_requests_that_name_it() {
    let mut peer = open(&TaskControls::new().server().build().unwrap());
    let id = begin(&mut peer, "ask");
    let mut questions = Vec::new();
    while questions.len() < 2 {
        let line = peer.read();
        match line["method"].as_str().unwrap() {
            "elicitation/create" => questions.push(line),
            method => assert_eq!(method, "notifications/tasks/status"),
        }
    }
    let seen = result(&mut peer, "tasks/get", json!({"taskId": id}));
    assert_eq!(seen["status"], "input_required");
    let fetch = peer.send("tasks/result", json!({"taskId": id}));
    for question in &questions {
        assert_eq!(question["params"]["_meta"][key::RELATED_TASK], json!({"taskId": id}));
        let content = if question["params"]["message"] == "Who are you?" {
            json!({"name": "Ada"})
        } else {
            json!({"age": 36})
        };
        peer.reply(question, json!({"action": "accept", "content": content}));
    }
    let last = loop {
        let line = peer.read();
        if line["method"] == "elicitation/create" {
            break line;
        }
        assert_eq!(line["method"], "notifications/tasks/status", "{line}");
    };
    peer.reply(&last, json!({"action": "accept", "content": {"name": "Bob"}}));
    let (fetched, _) = answered(&mut peer, &fetch);
    assert_eq!(text(&fetched["result"]), "Ada is 36 and knows Bob");
    drop(peer.end());
}

#[test]
fn a_tool_that_fails_is_a_task_that_failed() {
    let mut peer = open(&TaskControls::new().server().build().unwrap());
    let id = begin(&mut peer, "fails");
    let notice = told(&mut peer, &id, "failed");
    assert_eq!(notice["statusMessage"], "no luck");
    assert_eq!(result(&mut peer, "tasks/get", json!({"taskId": id}))["statusMessage"], "no luck");
    assert_eq!(failure(&result(&mut peer, "tasks/result", json!({"taskId": id}))), "no luck");
    let id = begin(&mut peer, "breaks");
    assert_eq!(told(&mut peer, &id, "failed")["statusMessage"], "broken");
    let answer = ask(&mut peer, "tasks/result", json!({"taskId": id}));
    assert_eq!(fault(&answer), (-31_000, "broken".into()), "the result of the call");
    drop(peer.end());
}

#[test]
fn a_task_can_be_cancelled_once() {
    let works = TaskControls::new();
    let mut peer = open(&works.server().build().unwrap());
    let id = begin(&mut peer, "must_slow");
    let fetch = peer.send("tasks/result", json!({"taskId": id}));
    let cancel = peer.send("tasks/cancel", json!({"taskId": id}));
    let mut lines = [peer.read(), peer.read(), peer.read()];
    lines.sort_by_key(|line| line["id"].as_i64().unwrap_or(i64::MAX));
    let [fetched, cancelled, notice] = lines;
    assert_eq!((&fetched["id"], &cancelled["id"]), (&fetch, &cancel));
    assert_eq!(fault(&fetched).0, -32602, "there is no result");
    assert_eq!((&cancelled["result"]["status"], &cancelled["result"]["taskId"]), (&json!("cancelled"), &id));
    assert_eq!(notice["params"]["status"], "cancelled", "{notice}");
    let answer = ask(&mut peer, "tasks/cancel", json!({"taskId": id}));
    assert_eq!(fault(&answer).0, -32602, "it has ended");
    assert_eq!(result(&mut peer, "tasks/get", json!({"taskId": id}))["status"], "cancelled");
    assert_eq!(works.alive(), 0, "the task has stopped");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let answer = ask(&mut peer, method, json!({"taskId": "0".repeat(32)}));
        assert_eq!(fault(&answer).0, -32602, "{method} of nothing");
        assert_eq!(peer.error(method, json!({})).0, -32602, "{method} without a name");
    }
    peer.close();
}

#[test]
fn a_task_that_asks_withdraws_its_question_when_it_is_cancelled() {
    let mut peer = open(&TaskControls::new().server().build().unwrap());
    let id = begin(&mut peer, "ask");
    let mut open = Vec::new();
    while open.len() < 2 {
        let line = peer.read();
        open.extend((line["method"] == "elicitation/create").then(|| line["id"].clone()));
    }
    let cancel = peer.send("tasks/cancel", json!({"taskId": id}));
    let mut answered = false;
    while !open.is_empty() || !answered {
        let line = peer.read();
        answered |= line["id"] == cancel;
        if line["method"] == "notifications/cancelled" {
            open.retain(|id| *id != line["params"]["requestId"]);
        }
    }
    drop(peer.end());
}

/// Returns the ids of all tasks that a client may list, and the sizes of the pages.
fn listed(peer: &mut Peer) -> (Vec<String>, Vec<usize>) {
    let (mut ids, mut sizes, mut params) = (Vec::new(), Vec::new(), json!({}));
    loop {
        let page = result(peer, "tasks/list", params);
        let tasks = page["tasks"].as_array().unwrap();
        ids.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
        sizes.push(tasks.len());
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return (ids, sizes),
        }
    }
}

#[test]
fn tasks_are_listed_in_pages_for_those_whose_they_are() {
    let service = TaskControls::new().server().build().unwrap();
    let (mut here, mut there) = (open(&service), open(&service));
    let mut ids: Vec<_> = (0..250).map(|_| begin(&mut here, "must").as_str().unwrap().to_owned()).collect();
    let (mut seen, sizes) = listed(&mut here);
    ids.sort();
    seen.sort();
    assert_eq!((seen, sizes), (ids, vec![100, 100, 50]));
    assert_eq!(listed(&mut there).0, Vec::<String>::new(), "another session has its own tasks");
    for wrong in ["", "x", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "../../etc/passwd"] {
        assert_eq!(fault(&ask(&mut here, "tasks/list", json!({"cursor": wrong}))).0, -32602, "{wrong}");
    }
    drop((here.end(), there.end()));
    let (ada, eve) = (service.for_principal("ada"), service.for_principal("eve"));
    let (mut here, mut there, mut other) = (open(&ada), open(&ada), open(&eve));
    let id = begin(&mut here, "must");
    assert_eq!(listed(&mut there).0, [id.as_str().unwrap()], "all sessions of a principal see the same");
    assert_eq!(listed(&mut other).0, Vec::<String>::new());
    assert_eq!(text(&result(&mut there, "tasks/result", json!({"taskId": id}))), "must");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(fault(&ask(&mut other, method, json!({"taskId": id}))).0, -32602, "{method} of another's");
    }
    drop((here.end(), there.end(), other.end()));
}
