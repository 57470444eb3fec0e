//! Real clients through the gateway of a hub: clients on the official SDKs, `FastMCP` and rmcp in their connection modes,
//! and the MCP Inspector. Each must report the same as with the server itself: without approval, with calls that the client
//! approves in a form, and with calls that a user of the hub approves. All messages of the gateway are validated.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::thread;

use interop_tests::expected_report::{BATCHES, FORMS, NEWEST_SESSION, STATELESS, expected_of_client};
use interop_tests::hub::{Hub, HubDirectory};
use interop_tests::peer::{RunningServer, peer, run_with_env};
use interop_tests::recording_proxy::Proxy;
use interop_tests::rest_client::{Event, Events};
use interop_tests::schema_check::{OwnSide, schema_violations_of_at_least, schema_violations_over_http};
use linchpin::Revision;
use serde_json::{Value, json};

/// Tools that need no approval: their steps count progress notifications, or cancel at the first one.
const TRUSTED: [&str; 3] = ["slow", "wait", "cancelled"];

/// Who approves the calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Approver {
    NotNeeded,
    Client,
    Hub,
}

/// Hub with the tour server, and a proxy that records what clients exchange with the gateway.
struct Site {
    hub: Hub,
    proxy: Proxy,
    _server: RunningServer,
    _directory: HubDirectory,
}

impl Site {
    fn start() -> Self {
        let server = RunningServer::start(&[env!("CARGO_BIN_EXE_tour-server").to_owned(), "http".to_owned()]);
        let directory = HubDirectory::new();
        let hub = directory.start();
        hub.add("tour", &format!("http://{}/mcp", server.address()), json!({}));
        hub.post("/servers/tour/connect", Value::Null);
        hub.post("/servers/tour/trust", Value::Null);
        let proxy = Proxy::start(hub.address());
        Site { hub, proxy, _server: server, _directory: directory }
    }

    /// Runs a client as an agent, and approves its calls if a user of the hub must do so. The token is in the environment,
    /// and replaces `{token}` in the command.
    fn run(&self, command: &[String], approver: Approver) -> Value {
        let approval = if approver == Approver::NotNeeded { "auto" } else { "trusted-only" };
        let agent = json!({
            "name": "Tourist", "approval": approval, "client_approvals": approver == Approver::Client,
            "servers": { "tour": { "trusted": TRUSTED } },
        });
        let agent = format!("/agents/{}", self.hub.post("/agents", agent)["id"].as_str().unwrap());
        let token = self.hub.post(&format!("{agent}/tokens"), json!({ "name": "test" }));
        let token = token["token"].as_str().unwrap();
        let command: Vec<String> = command.iter().map(|part| part.replace("{token}", token)).collect();
        let events = self.hub.subscribe(None);
        thread::scope(|scope| {
            if approver == Approver::Hub {
                scope.spawn(move || self.approve_until_agent_changes(&events));
            }
            let report = run_with_env(&command, &[("TOUR_TOKEN", token)]);
            self.hub.delete(&agent);
            report
        })
    }

    fn approve_until_agent_changes(&self, events: &Events) {
        loop {
            let Event { kind, body, .. } = events.next();
            match &*kind {
                "approval" if body["decision"] == "open" => {
                    let id = body["approval"].as_str().unwrap();
                    self.hub.post(&format!("/approvals/{id}/approve"), json!({}));
                }
                "agent" => return,
                _ => {}
            }
        }
    }
}

fn check(client: &str, mode: Option<&str>, way: &str, agreed: Revision) {
    let mut differences = Vec::new();
    for approver in [Approver::NotNeeded, Approver::Client, Approver::Hub] {
        if approver == Approver::Client && agreed < FORMS {
            continue;
        }
        let site = Site::start();
        let mut command = peer(client);
        command.extend(mode.into_iter().flat_map(|mode| ["--mode".to_owned(), mode.to_owned()]));
        command.extend([way.to_owned(), site.proxy.url("/mcp/servers/tour")]);
        let report = site.run(&command, approver);
        differences.extend(compare(&report, &expected_of_client(client, agreed, &report), approver));
        differences.extend(schema_violations_over_http(&site.proxy.entries(), OwnSide::Server));
    }
    assert_eq!(differences, Vec::<String>::new());
}

/// Returns the steps of a tour whose results are not the expected ones.
fn compare(report: &Value, wanted: &Value, approver: Approver) -> Vec<String> {
    let (report, wanted) = (report.as_object().unwrap(), wanted.as_object().unwrap());
    let names: BTreeSet<_> = report.keys().chain(wanted.keys()).collect();
    let differs = |name: &&String| report.get(*name) != wanted.get(*name);
    let differing = names.into_iter().filter(differs);
    differing
        .map(|name| format!("{approver:?}: {name}: {:?} instead of {:?}", report.get(name), wanted.get(name)))
        .collect()
}

macro_rules! clients {
    ($( $name:ident: $client:literal, $mode:expr, $way:literal => $agreed:expr; )*) => {$(
        #[test]
        fn $name() {
            check($client, $mode, $way, $agreed);
        }
    )*};
}

clients! {
    typescript_1: "client.mjs", None, "--url" => NEWEST_SESSION;
    typescript_1_sse: "client.mjs", None, "--sse" => NEWEST_SESSION;
    typescript_2_automatic: "client-modern.mjs", Some("auto"), "--url" => STATELESS;
    typescript_2_legacy: "client-modern.mjs", Some("legacy"), "--url" => NEWEST_SESSION;
    typescript_2_batches: "client-modern.mjs", Some(BATCHES.as_str()), "--url" => BATCHES;
    python_2_automatic: "client.py", Some("auto"), "--url" => STATELESS;
    python_2_legacy: "client.py", Some("legacy"), "--url" => NEWEST_SESSION;
    python_2_sse: "client.py", Some("legacy"), "--sse" => NEWEST_SESSION;
    python_1: "client-1.py", None, "--url" => NEWEST_SESSION;
    fastmcp_automatic: "client-fastmcp.py", Some("auto"), "--url" => STATELESS;
    fastmcp_legacy: "client-fastmcp.py", Some("legacy"), "--url" => NEWEST_SESSION;
    rmcp_stateless: "rmcp client", None, "--url" => STATELESS;
    rmcp_session: "rmcp client", Some("legacy"), "--url" => NEWEST_SESSION;
}

/// The Inspector executes one request per process. It has no forms.
fn check_inspector(era: &str) {
    let site = Site::start();
    for approver in [Approver::NotNeeded, Approver::Hub] {
        let inspect = |arguments: &[&str]| {
            let proxy = Proxy::start(site.hub.address()); // all processes use the same request ids
            let url = proxy.url("/mcp/servers/tour");
            let options = ["--transport", "http", "--protocol-era", era, "--format", "json", "--quiet"];
            let server = ["--server-url", &url, "--header", "Authorization: Bearer {token}"];
            let mut command = peer("inspector");
            command.extend(server.iter().chain(&options).chain(arguments).map(|&text| text.to_owned()));
            let report = site.run(&command, approver);
            let violations = schema_violations_of_at_least(2, &proxy.entries(), OwnSide::Server);
            assert_eq!(violations, Vec::<String>::new());
            report["result"].clone()
        };
        let tools = inspect(&["--method", "tools/list"]);
        assert_eq!(tools["tools"].as_array().map(Vec::len), Some(12), "{tools:#}");
        let echo = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hello"];
        let result = inspect(&echo);
        assert_eq!(result["content"][0]["text"], "hello", "{result:#}");
        let status = inspect(&["--method", "resources/read", "--uri", "memo://status"]);
        assert_eq!(status["contents"][0]["text"], "ok", "{status:#}");
        let review = ["--method", "prompts/get", "--prompt-name", "review", "--prompt-args", "language=rust"];
        let prompt = inspect(&review);
        assert_eq!(prompt["messages"][0]["content"]["text"], "Review this rust code.", "{prompt:#}");
    }
}

#[test]
fn inspector_legacy() {
    check_inspector("legacy");
}

#[test]
fn inspector_modern() {
    check_inspector("modern");
}
