//! Commands of the hub in everyday use: names, times, links, and errors that say what to do.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use hub::Home;
use rest::Rest;
use serde_json::json;
use support::{LINCHPIN, run, run_in};

/// A server whose tool gives what it is asked for.
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
