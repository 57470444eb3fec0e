//! `linchpin call`: arguments, results and elicitation.

mod support;

use serde_json::{Value, json};
use support::{LINCHPIN, on_terminal, run, run_with};

const SUM: &str = r#"{"a": 2, "b": 40}"#;

#[test]
fn a_tool_is_called() {
    for arguments in [
        ["call", "add", "--args", SUM, "--", LINCHPIN, "demo"],
        ["call", "--args", SUM, "add", "--", LINCHPIN, "demo"],
    ] {
        assert_eq!(run(&arguments).expect_output(0, &[]).stdout, "{\"sum\":42.0}\n");
    }
    assert_eq!(
        run(&["call", "add", "--args", SUM, LINCHPIN, "demo"]).expect_output(0, &[]).stdout,
        "{\"sum\":42.0}\n"
    );
}

#[test]
fn arguments_come_from_where_they_are() {
    let piped = run_with(r#"{"message": "piped"}"#, &["call", "echo", "--args", "-", LINCHPIN, "demo"]);
    assert_eq!(piped.expect_output(0, &[]).stdout, "piped\n");
    let path = std::env::temp_dir().join(format!("linchpin-call-{}.json", std::process::id()));
    std::fs::write(&path, r#"{"message": "filed"}"#).unwrap();
    let filed = run(&["call", "echo", "--args", &format!("@{}", path.display()), LINCHPIN, "demo"]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(filed.expect_output(0, &[]).stdout, "filed\n");
}

#[test]
fn wrong_usage_says_what_is_wrong() {
    let cases = [
        (["--args", r#"{"a":"#], "--args: unsupported JSON: unexpected end of the JSON text"),
        (["--args", r#"{"a": 1, "a": 2}"#], "the key \"a\" occurs twice"),
        (["--args", "[1]"], r#"must be a JSON object such as {"name": "value"}, not [1]"#),
        (["--args", "@/no/such/file"], "failed to read /no/such/file"),
        (["--answer", "size"], "must have the form field=value"),
        (["--timeout", "0"], "--timeout"),
        (["--agrs", "{}"], "'--args'"),
    ];
    for (option, expected) in cases {
        run(&[&["call", "add"], &option[..], &[LINCHPIN, "demo"]].concat()).expect_output(2, &[expected]);
    }
    run(&["call", "add"]).expect_output(2, &["<URL|COMMAND>"]);
    let failed = run(&["--json", "call", "add", "--args", "5", LINCHPIN, "demo"]);
    assert_eq!((failed.code, &failed.json()["error"]["kind"]), (Some(2), &Value::from("usage")));
}

#[test]
fn failures_end_with_one() {
    run(&["call", "ad", LINCHPIN, "demo"]).expect_output(1, &["unknown tool `ad`", "did you mean add?"]);
    run(&["call", "zzzz", LINCHPIN, "demo"]).expect_output(1, &["with `linchpin inspect`"]);
    let failed = run(&["--json", "call", "cuontdown", LINCHPIN, "demo"]);
    assert_eq!((failed.code, &failed.json()["error"]["kind"]), (Some(1), &Value::from("unknown_tool")));
    // An error result of a tool goes to standard error, so that it does not mix with results.
    let failed = run(&["call", "add", "--args", r#"{"a": 1}"#, LINCHPIN, "demo"])
        .expect_output(1, &["missing field `b`"]);
    assert_eq!(failed.stdout, "");
    let failed = run(&["--json", "call", "add", "--args", r#"{"a": 1}"#, LINCHPIN, "demo"]);
    assert_eq!((failed.code, failed.json()["isError"].clone()), (Some(1), json!(true)));
    run(&["call", "add", "sh", "-c", "echo no database >&2; exit 3"])
        .expect_output(1, &["status 3", "no database"]);
}

/// A server of the session era whose tools never return, end the process, or return the requested result.
const TOOLS: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "old", "version": "1"}}
    elif method == "tools/list":
        names = ["hang", "die", "refuse", "give"]
        answer["result"] = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "tools/call" and params["name"] == "hang":
        print("hanging", file=sys.stderr, flush=True)
        continue
    elif method == "tools/call" and params["name"] == "die":
        sys.exit("out of paper")
    elif method == "tools/call" and params["name"] == "give":
        answer["result"] = params["arguments"]
    else:
        answer["error"] = {"code": -32000, "message": "I refuse", "data": {"why": method}}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn a_server_that_does_not_answer_is_explained() {
    run(&["call", "hang", "--timeout", "1", "python3", "-c", TOOLS])
        .expect_output(1, &["`hang` returned no result within 1.0 s: increase --timeout", "  | hanging\n"]);
    run(&["call", "die", "python3", "-c", TOOLS])
        .expect_output(1, &["may or may not have happened", "out of paper"]);
    run(&["call", "refuse", "python3", "-c", TOOLS]).expect_output(1, &["linchpin: I refuse (code -32000)"]);
    let refused = run(&["--json", "call", "refuse", "python3", "-c", TOOLS]).expect_output(1, &[]).json();
    let message = "I refuse (code -32000)";
    let data = json!({ "why": "tools/call" });
    assert_eq!(
        refused,
        json!({ "error": { "kind": "protocol", "message": message, "code": -32000, "data": data } })
    );
}

#[test]
fn what_is_no_text_is_summarised() {
    let give = |result: Value| {
        run(&["call", "give", "--args", &result.to_string(), "python3", "-c", TOOLS]).expect_output(0, &[])
    };
    let image = json!({ "type": "image", "data": "A".repeat(16_000), "mimeType": "image/png" });
    assert_eq!(give(json!({ "content": [image] })).stdout, "[image/png, 12 KB]\n");
    assert_eq!(give(json!({ "content": [], "structuredContent": { "a": 1 } })).stdout, "{\n  \"a\": 1\n}\n");
    assert_eq!(give(json!({ "content": [] })).stdout, "");
}

#[test]
fn results_are_objects_for_programs() {
    let result =
        run(&["--json", "call", "add", "--args", SUM, LINCHPIN, "demo"]).expect_output(0, &[]).json();
    let expected = json!({
        "tool": "add",
        "content": [{ "type": "text", "text": "{\"sum\":42.0}" }],
        "structuredContent": { "sum": 42.0 },
        "isError": false,
    });
    assert_eq!(result, expected);
}

#[test]
fn progress_is_told_in_lines() {
    let run = run(&["call", "countdown", "--args", r#"{"from": 3}"#, LINCHPIN, "demo"]);
    assert_eq!(run.stdout, "Counted down from 3.\n");
    assert_eq!(run.stderr, "progress 1/3 2 to go\nprogress 2/3 1 to go\nprogress 3/3 0 to go\n");
}

#[test]
fn progress_is_a_bar_on_a_terminal() {
    let run = on_terminal(&[], &["call", "countdown", "--args", r#"{"from": 2}"#, LINCHPIN, "demo"]);
    assert!(run.stdout.contains("━\x1b[0m\x1b[2m─"), "{}", run.stdout);
    // The bar is removed at the end.
    assert!(run.stdout.ends_with("\r\x1b[KCounted down from 2.\r\n"), "{}", run.stdout);
}

#[test]
fn a_question_without_anybody_to_answer_is_declined() {
    let run_ = run(&["call", "order", LINCHPIN, "demo"]);
    run_.expect_output(1, &["no input is available", "--answer size=…", "the user declined the elicitation"]);
    run(&["call", "terms", LINCHPIN, "demo"])
        .expect_output(1, &["https://example.com/terms", "the user declined to open"]);
}

#[test]
fn questions_are_answered_from_the_command_line() {
    let answers = [
        "call",
        "order",
        "--answer",
        "size=large",
        "--answer",
        "count=3",
        "--answer",
        "x=y",
        LINCHPIN,
        "demo",
    ];
    let run_ = run(&answers).expect_output(0, &["--answer x: unused, the server did not request this field"]);
    assert_eq!(run_.stdout, "3 × large tea, to stay\n");
    let answers = ["call", "order", "--answer", "size=huge", "--answer", "count=3", LINCHPIN, "demo"];
    run(&answers)
        .expect_output(1, &["--answer size=huge: huge is not one of small, medium, large", "declined"]);
}

#[test]
fn questions_are_answered_from_a_pipe() {
    let run = run_with("medium\nmany\n3\n\nhot\n", &["call", "order", LINCHPIN, "demo"]);
    assert_eq!(run.expect_output(0, &["many is not an integer"]).stdout, "3 × medium tea, to stay (hot)\n");
    assert_eq!(
        run_with("!cancel\n", &["call", "order", LINCHPIN, "demo"])
            .expect_output(1, &["cancelled the elicitation"])
            .stdout,
        ""
    );
    let run = run_with("what\ny\n", &["call", "terms", LINCHPIN, "demo"]);
    assert_eq!(
        run.expect_output(0, &["on the host example.com"]).stdout,
        "The user agreed to read the terms.\n"
    );
}

#[test]
fn questions_are_answered_at_a_terminal() {
    let steps = [
        ("size: ", "9\n"),
        ("from 1 to 3", "2\n"),
        ("count: ", "13\n"),
        ("at most 12", "3\n"),
        ("to_go [n]: ", "y\n"),
        ("wish: ", "\n"),
        ("Send this?", "e\n"),
        ("size [2]: ", "\n"),
        ("count [3]: ", "4\n"),
        ("to_go [y]: ", "\n"),
        ("wish: ", "hot\n"),
        ("Send this?", "\n"),
    ];
    let run = on_terminal(&steps, &["call", "order", LINCHPIN, "demo"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.ends_with("4 × medium tea, to go (hot)\r\n"), "{}", run.stdout);
    let closed = on_terminal(&[("size: ", "\u{4}")], &["call", "order", LINCHPIN, "demo"]);
    assert!(closed.stdout.contains("the user cancelled the elicitation"), "{}", closed.stdout);
    let refused = on_terminal(&[("y or n: ", "!decline\n")], &["call", "terms", LINCHPIN, "demo"]);
    assert!(refused.stdout.contains("the user declined to open the page"), "{}", refused.stdout);
    assert_eq!((closed.code, refused.code), (Some(1), Some(1)));
}

/// Returns whether a process exists and is not a zombie.
#[cfg(target_os = "linux")]
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupt_ends_the_server_and_what_it_started() {
    for (text, tool, arguments) in
        [("/100", "countdown", r#"{"from": 100, "pause_ms": 1000}"#), ("size: ", "order", "{}")]
    {
        let path = std::env::temp_dir().join(format!("linchpin-interrupt-{tool}-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $$ $! > {}; exec {LINCHPIN} demo", path.display());
        let run = on_terminal(&[(text, "\u{3}")], &["call", tool, "--args", arguments, "sh", "-c", &script]);
        assert_eq!(run.code, Some(130), "{}{}", run.stdout, run.stderr);
        let processes = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (server, other) = processes.trim().split_once(' ').unwrap();
        assert!(!std::path::Path::new("/proc").join(server).exists(), "the server still runs");
        assert!(!is_alive(other), "a child of the server still runs");
    }
}
