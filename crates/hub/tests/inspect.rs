//! `linchpin inspect`: text and JSON output, and the errors for a server that
//! fails.

mod support;

use serde_json::Value;
use support::{LINCHPIN, on_terminal, run};

/// A server of the session era with stray output, in Python.
const OLD: &str = r#"
import json, sys
print("starting", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "initialize":
        print("a stray line", flush=True)
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}},
                            "serverInfo": {"name": "old\u001b[2J", "version": "1"}}
    elif message["method"] == "resources/list":
        answer["result"] = {"resources": [{"uri": "a://b", "name": "b", "description": "x " * 100}]}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn everything_is_shown_and_aligned() {
    for arguments in [&["inspect", LINCHPIN, "demo"][..], &["inspect", "--", LINCHPIN, "demo"]] {
        let shown = run(arguments).expect_output(0, &[]).stdout;
        let expected = [
            "linchpin-demo 0.1.0  Linchpin demo\n",
            "  revision      2026-07-28\n",
            "  instructions  A demo server for experiments.",
            "  add  [read-only]  [idempotent]  [closed world]\n    Adds two numbers\n",
            "      from      integer 1…100   required  Start value, 1–100\n",
            "      pause_ms  integer 0…1000            Milliseconds between",
            "\nResources (1)\n\n  memory://status",
            "\nResource templates (1)\n\n  notes://{name}  note  text/markdown  A note about this server\n",
            "  review  Review code\n    Requests a code review\n      language  required  Programming",
        ];
        for part in expected {
            assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
        }
        assert!(!shown.contains('\x1b'), "{shown}");
    }
}

#[test]
fn a_terminal_gets_colours_and_lines_that_fit() {
    let run = on_terminal(&[], &["inspect", LINCHPIN, "demo"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("\x1b[1;36mcountdown\x1b[0m"), "{}", run.stdout);
    for line in run.stdout.lines() {
        let plain: Vec<&str> =
            line.split('\x1b').map(|part| part.split_once('m').map_or(part, |(_, text)| text)).collect();
        assert!(plain.concat().trim_end().chars().count() <= 80, "{line}");
    }
    assert!(
        run.stdout.contains("steps.\r\n                                          Default: 0"),
        "{}",
        run.stdout
    );
}

#[test]
fn for_programs_there_is_one_object() {
    for arguments in [["--json", "inspect", LINCHPIN, "demo"], ["inspect", "--json", LINCHPIN, "demo"]] {
        let found = run(&arguments).expect_output(0, &[]).json();
        assert_eq!(found["server"]["name"], "linchpin-demo");
        assert_eq!(found["server"]["title"], "Linchpin demo");
        assert_eq!(found["revision"], "2026-07-28");
        assert!(found["instructions"].as_str().unwrap().starts_with("A demo server"));
        assert_eq!(found["capabilities"]["resources"]["subscribe"], true);
        let names: Vec<&str> =
            found["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["add", "echo", "countdown", "order", "terms"]);
        assert_eq!(found["tools"][0]["annotations"]["readOnlyHint"], true);
        assert_eq!(found["tools"][0]["inputSchema"]["required"][1], "b");
        assert_eq!(found["tools"][0]["outputSchema"]["type"], "object");
        assert_eq!(found["resources"][0]["uri"], "memory://status");
        assert_eq!(found["resource_templates"][0]["uriTemplate"], "notes://{name}");
        assert_eq!(found["prompts"][0]["arguments"][0]["required"], true);
    }
}

#[test]
fn only_what_is_announced_is_asked_for() {
    let shown = run(&["inspect", "python3", "-c", OLD])
        .expect_output(0, &["not a JSON-RPC message to standard output: a stray line"]);
    assert!(!shown.stderr.contains("starting"), "{}", shown.stderr);
    // Texts of a server cannot clear the screen.
    assert!(shown.stdout.starts_with("old\u{FFFD}[2J 1\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("Resources (1)\n\n  a://b  b  x x"), "{}", shown.stdout);
    assert!(shown.stdout.contains("Resource templates (0)\n"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("Tools") && !shown.stdout.contains("Prompts"), "{}", shown.stdout);
    let found = run(&["--json", "inspect", "python3", "-c", OLD]).json();
    assert_eq!((&found["tools"], &found["revision"]), (&Value::Array(vec![]), &Value::from("2025-06-18")));
    run(&["-v", "inspect", "python3", "-c", OLD]).expect_output(0, &["server | starting\n"]);
}

#[test]
fn a_server_that_fails_is_explained() {
    run(&["inspect", "no-such-program-here"])
        .expect_output(1, &["linchpin: cannot start `no-such-program-here`", "in PATH"]);
    run(&["inspect", "sh", "-c", "echo no database >&2; exit 3"])
        .expect_output(1, &["status 3", "no database"]);
    run(&["inspect", "sh", "-c", "echo garbage; echo oh >&2"])
        .expect_output(1, &["status 0", "oh", "not a JSON-RPC message", ": garbage\n"]);
    let silent = ["inspect", "--timeout", "1", "sh", "-c", "echo loading >&2; cat >/dev/null"];
    run(&silent).expect_output(1, &["did not respond within 1s", "standard error:\n  | loading\n"]);
}

#[test]
fn failures_are_objects_for_programs() {
    let failed = run(&["--json", "inspect", "no-such-program-here"]);
    assert_eq!((failed.code, failed.stderr.as_str()), (Some(1), ""));
    assert_eq!(failed.json()["error"]["kind"], "start");
    let failed = run(&["--json", "inspect", "sh", "-c", "echo no database >&2; exit 3"]).json();
    assert_eq!(failed["error"]["kind"], "connection");
    assert!(failed["error"]["message"].as_str().unwrap().contains("no database"));
    let failed = run(&["inspect", "--json"]);
    assert_eq!((failed.code, &failed.json()["error"]["kind"]), (Some(2), &Value::from("usage")));
    assert!(failed.json()["error"]["message"].as_str().unwrap().contains("<URL|COMMAND>"));
}
