//! Commands of the hub in everyday use: names, times, links, and errors that say what to do.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use hub::{Demo, Home};
use linchpin::Revision;
use rest::Rest;
use serde_json::{Value, json};
use support::{LINCHPIN, run, run_in};

/// A server whose tool returns the requested result.
const GIVE: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "initialize":
        answer["result"] = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "give", "version": "1"}}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "give", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        answer["result"] = message["params"]["arguments"]
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn an_error_of_a_tool_is_printed_once() {
    let home = Home::new();
    let file = home.file("give.py");
    std::fs::write(&file, GIVE).unwrap();
    home.ok(&["server", "add", "Give", "--", "python3", file.to_str().unwrap()]);
    let _hub = home.start();
    home.ok(&["server", "connect", "give"]);
    let result = json!({ "content": [{ "type": "text", "text": "no paper\nadd some" }], "isError": true });
    let failed = home.run(&["tool", "call", "mcp_give__give", "--args", &result.to_string()]);
    assert_eq!((failed.code, &*failed.stdout), (Some(1), ""));
    assert_eq!(failed.stderr, "linchpin: error: no paper\nadd some\n");
}

#[test]
fn a_timeout_means_the_same_everywhere() {
    let home = Home::new();
    for (typed, millis) in [("4", 4_000), ("5s", 5_000), ("1500ms", 1_500)] {
        let slug = format!("x{typed}");
        home.ok(&["server", "add", "X", "--slug", &slug, "--timeout", typed, "--", LINCHPIN, "demo"]);
        let file = std::fs::read_to_string(home.config()).unwrap();
        assert!(file.contains(&format!("timeout_ms = {millis}")), "{file}");
        run(&["call", "echo", "--args", r#"{"message": "hi"}"#, "--timeout", typed, LINCHPIN, "demo"])
            .expect_output(0, &[]);
    }
    let expected = "must be from 1s to 300s; a plain number is in seconds";
    home.run(&["server", "update", "x4", "--timeout", "60000"]).expect_output(2, &[expected]);
    let silent = ["inspect", "--timeout", "200ms", "sh", "-c", "cat >/dev/null"];
    run(&silent).expect_output(1, &["did not respond within 200ms"]);
    run(&["inspect", "--timeout", "1d", LINCHPIN, "demo"]).expect_output(2, &["500ms, 30s, 15m or 2h"]);
    let _hub = home.start();
    let shown = home.ok(&["server", "show", "x1500ms"]);
    assert!(shown.contains("1500ms"), "{shown}");
}

#[test]
fn tokens_of_agents_are_listed_with_their_owners() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["agent", "add", "Helper", "--server", "demo"]);
    home.ok(&["agent", "add", "Other", "--server", "demo"]);
    for (name, agent) in [("for helper", "Helper"), ("for other", "Other")] {
        home.ok(&["token", "add", name, "--agent", agent]);
    }
    home.ok(&["token", "add", "mine"]);
    let listed = home.ok(&["token", "list"]);
    for text in ["for helper", "for other", "mine"] {
        assert!(listed.contains(text), "{text} is missing in:\n{listed}");
    }
    assert_eq!(home.json(&["token", "list"]).as_array().unwrap().len(), 3);
    let own = home.json(&["token", "list", "--agent", "Helper"]);
    assert_eq!((own.as_array().unwrap().len(), &own[0]["name"]), (1, &"for helper".into()));
}

#[test]
fn templates_are_listed_with_the_resources() {
    let home = Home::new();
    let _hub = home.start();
    let listed = home.ok(&["resource", "list", "demo"]);
    assert!(listed.contains("memory://status") && listed.contains("notes://{name}"), "{listed}");
    let both = home.json(&["resource", "list", "demo"]);
    assert_eq!(
        (&both[0]["uri"], &both[1]["uriTemplate"]),
        (&"memory://status".into(), &"notes://{name}".into())
    );
    let templates = home.ok(&["resource", "list", "demo", "--templates"]);
    assert!(!templates.contains("memory://status") && templates.contains("notes://{name}"), "{templates}");
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let home = Home::new();
    let file = home.file("mcp.json");
    let text = format!(r#"{{"mcpServers": {{"mine": {{"command": "{LINCHPIN}", "args": ["demo"]}}}}}}"#);
    std::fs::write(&file, text).unwrap();
    let import = ["import", file.to_str().unwrap(), "--format", "cursor"];
    let dry = home.ok(&[&import[..], &["--dry-run"]].concat());
    assert!(dry.contains("would add  mine") && !dry.contains("added"), "{dry}");
    assert!(!home.config().exists());
    let done = home.ok(&[&import[..], &["--yes"]].concat());
    assert!(done.contains("server `mine` added"), "{done}");
}

#[test]
fn a_running_hub_prints_a_new_login_link() {
    let home = Home::new();
    home.run(&["login-link"]).expect_output(1, &["no hub runs on"]);
    let hub = home.start();
    let links = [home.ok(&["login-link"]), home.ok(&["login-link"])];
    assert_ne!(links[0], links[1]);
    let answers = links.map(|link| {
        let path = link.trim().strip_prefix(&hub.url).unwrap().to_owned();
        Rest::new(&hub.url, "").request("GET", &path, &[], "").unwrap()
    });
    assert_eq!((answers[0].status, answers[1].status), (303, 401), "using one link invalidates the other");
    assert!(answers[0].header("set-cookie").is_some());
    assert!(home.json(&["login-link"])["expires"].is_string());

    let token = home.ok(&["token", "add", "mine"]);
    let elsewhere = run_in(&[("LINCHPIN_TOKEN", token.trim())], &["--hub", &hub.url, "login-link"]);
    elsewhere.expect_output(1, &["only the operator", "`linchpin login-link` on the machine of the hub"]);
    home.run_with("correct horse battery", &["user", "password", "local"]).expect_output(0, &[]);
    // The operator can log in although the name is locked.
    let rest = Rest::new(&hub.url, "");
    let form = json!({ "password": "a wrong password" }).to_string();
    let wrong = || {
        rest.request("POST", "/api/v1/session", &[("content-type", "application/json")], &form)
            .unwrap()
            .status
    };
    let statuses: Vec<_> = (0..6).map(|_| wrong()).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    let link = home.ok(&["login-link"]);
    let path = link.trim().strip_prefix(&hub.url).unwrap();
    assert_eq!(rest.request("GET", path, &[], "").unwrap().status, 303);
}

#[test]
fn people_see_names_and_programs_ids_beside_them() {
    let home = Home::new();
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let agent = home.json(&["agent", "add", "Helper", "--server", "demo"]);
    let subject = format!("agent:{}", agent["id"].as_str().unwrap());
    let token = home.ok(&["token", "add", "laptop", "--agent", "Helper"]);
    let tokens = home.ok(&["token", "list"]);
    assert!(tokens.contains("Helper") && !tokens.contains("agent:"), "{tokens}");
    let call =
        ["--hub", &hub.url, "tool", "call", "mcp_demo__add", "--args", r#"{"a": 1, "b": 2}"#, "--no-wait"];
    run_in(&[("LINCHPIN_TOKEN", token.trim())], &call).expect_output(0, &[]);
    for shown in
        [home.ok(&["approvals"]), home.ok(&["calls"]), home.ok(&["calls", "list", "--agent", "Helper"])]
    {
        assert!(shown.contains("Helper") && shown.contains("mcp_demo__add"), "{shown}");
        assert!(!shown.contains("agent:"), "{shown}");
    }
    assert_eq!(home.json(&["calls", "list", "--agent", "Helper"]).as_array().unwrap().len(), 1);
    let approval = &home.json(&["approvals"])[0];
    assert_eq!(approval["call"]["subject_name"], "Helper");
    assert_eq!(approval["call"]["subject"], *subject, "the JSON also has the id");
    let id = approval["id"].as_str().unwrap();
    home.ok(&["approvals", "deny", id]);
    let shown = home.ok(&["approvals", "show", id]);
    assert!(shown.contains("local") && !shown.contains("user:"), "{shown}");
    assert_eq!(home.json(&["token", "list"])[0]["owner_name"], "Helper");
    home.ok(&["agent", "remove", "Helper"]);
    let shown = home.ok(&["calls"]);
    assert!(shown.contains(&subject), "a removed agent is shown by its id: {shown}");
}

#[test]
fn a_disabled_server_has_that_status() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.ok(&["server", "disable", "demo"]);
    assert_eq!(home.json(&["server", "show", "demo"])["status"], "disabled");
    let disabled = home.json(&["server", "list", "--status", "disabled"]);
    assert_eq!(disabled.as_array().unwrap().len(), 1, "{disabled}");
    assert_eq!(home.json(&["server", "list", "--status", "disconnected"]), json!([]));
    home.ok(&["server", "enable", "demo"]);
    assert_eq!(home.json(&["server", "connect", "demo"])["status"], "connected");
}

#[test]
fn before_a_sign_in_a_call_says_to_sign_in() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&[
        "server",
        "add",
        "Far",
        "--url",
        "https://127.0.0.1:9/mcp",
        "--auth",
        "oauth",
        "--retries",
        "0",
    ]);
    let expected = "sign in first with `linchpin server sign-in far`";
    home.run(&["tool", "call", "read", "--server", "far"]).expect_output(1, &[expected]);
    home.run(&["tool", "call", "mcp_far__read"]).expect_output(1, &[expected]);
    home.run(&["tool", "describe", "mcp_far__read"]).expect_output(1, &[expected]);
    home.ok(&["server", "add", "Near", "--url", "https://127.0.0.1:9/mcp", "--retries", "0"]);
    home.run(&["tool", "call", "read", "--server", "near"])
        .expect_output(1, &["the tools of `near` are not known yet", "127.0.0.1"]);
    home.ok(&["server", "connect", "demo"]);
    home.run(&["tool", "call", "read", "--server", "demo"]).expect_output(1, &["`demo` has no tool `read`"]);
}

#[test]
fn tools_that_a_server_does_not_have_are_refused() {
    let home = Home::new();
    let _hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let add = |selection: &str| home.run(&["agent", "add", "Helper", "--server", selection]);
    add("demo:ehco")
        .expect_output(1, &["`servers.demo`: the server `demo` has no tool `ehco`: did you mean `echo`?"]);
    add("demo:nosuch")
        .expect_output(1, &["`demo` has no tool `nosuch`: its tools include `add`, `countdown`, `echo`"]);
    assert_eq!(home.json(&["agent", "list"]), json!([]));
    home.run(&["agent", "add", "Helper", "--server", "demo", "--trust", "demo:ad"])
        .expect_output(1, &["`add`"]);
    add("demo:echo").expect_output(0, &[]);
    home.run(&["agent", "update", "Helper", "--server", "demo:echo,nosuch"]).expect_output(1, &["`nosuch`"]);
    // Nothing is known of the tools of a server that was never synced.
    home.ok(&["server", "add", "Far", "--url", "https://127.0.0.1:9/mcp", "--disabled"]);
    home.ok(&["agent", "add", "Other", "--server", "far:anything"]);
}

#[test]
fn the_demo_server_is_replaced_on_request_alone() {
    let home = Home::new();
    let add = ["server", "add", "Demo", "--env", "A=B", "--", LINCHPIN, "demo"];
    home.run(&add).expect_output(2, &["`demo` is the built-in demo server", "--slug", "--replace-demo"]);
    assert!(!home.config().exists());
    home.ok(&[&add[..2], &["Demo", "--slug", "mine", "--", LINCHPIN, "demo"]].concat());
    home.ok(&[&add[..2], &["Demo", "--replace-demo", "--", LINCHPIN, "demo"]].concat());
    home.run(&add).expect_output(1, &["server `demo` already exists"]);
    home.run(&[&add[..2], &["X", "--replace-demo", "--", LINCHPIN, "demo"]].concat())
        .expect_output(2, &["--slug demo"]);
}

#[test]
fn an_address_that_is_not_allowed_is_named_with_its_setting_at_once() {
    let (home, demo) = (Home::new(), Demo::start());
    let _hub = home.start();
    let expected = ["127.0.0.1 is a loopback address", "`[egress] allow = [\"127.0.0.0/8\"]`"];
    home.run(&["server", "add", "Near", "--url", &demo.url, "--retries", "0"]).expect_output(0, &expected);
    home.run(&["server", "connect", "near"]).expect_output(1, &expected);
    let local = demo.url.replace("127.0.0.1", "localhost");
    let added =
        home.run(&["server", "add", "Named", "--url", &local, "--json"]).expect_output(0, &expected).json();
    assert!(added["error"].as_str().unwrap().contains(expected[1]), "{added}");
    home.run(&["server", "add", "Public", "--url", "https://a.example/mcp", "--disabled"])
        .expect_output(0, &[]);
    let update = ["server", "update", "public", "--url", "https://192.168.1.1/mcp"];
    home.run(&update).expect_output(0, &["`[egress] allow = [\"192.168.0.0/16\"]`"]);
}

#[test]
fn a_revision_can_be_pinned() {
    let (home, revision) = (Home::new(), Revision::LATEST_SESSION.as_str());
    let inspected =
        run(&["--json", "inspect", "--revision", revision, LINCHPIN, "demo"]).expect_output(0, &[]).json();
    assert_eq!(inspected["revision"], revision);
    run(&["call", "echo", "--args", r#"{"message": "hi"}"#, "--revision", revision, LINCHPIN, "demo"])
        .expect_output(0, &[]);
    let examined =
        run(&["--json", "doctor", "--revision", revision, LINCHPIN, "demo"]).expect_output(0, &[]).json();
    assert!(examined.to_string().contains(revision), "{examined}");
    let unknown = ["unknown protocol revision \"1999-01-01\"", revision, Revision::LATEST.as_str()];
    run(&["inspect", "--revision", "1999-01-01", LINCHPIN, "demo"]).expect_output(2, &unknown);

    home.ok(&["server", "add", "Mine", "--revision", revision, "--", LINCHPIN, "demo"]);
    let file = std::fs::read_to_string(home.config()).unwrap();
    assert!(file.contains(&format!("revision = \"{revision}\"")), "{file}");
    let _hub = home.start();
    assert_eq!(home.json(&["server", "test", "mine"])["revision"], revision);
    assert_eq!(home.json(&["server", "show", "mine"])["revision"], revision);
    let changed = home.json(&["server", "update", "mine", "--no-revision"]);
    assert_eq!(changed["revision"], Value::Null, "{changed}");
    assert_eq!(home.json(&["server", "test", "mine"])["revision"], Revision::LATEST.as_str());
    home.run(&["server", "update", "mine", "--revision", "1999-01-01"]).expect_output(2, &unknown);
}
