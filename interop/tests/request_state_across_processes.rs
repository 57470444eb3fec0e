//! A call that is started in one process and resumed in another with the same key.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use linchpin::Revision;
use serde_json::{Value, json};

/// Sends one request to a new process and returns its response.
fn answer(params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": Revision::LATEST.as_str(),
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut server = Command::new(env!("CARGO_BIN_EXE_tour-server"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(server.stdin.as_mut().unwrap(), "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn another_process_with_the_same_key_goes_on() {
    let asked = answer(json!({ "name": "ask", "arguments": {} }));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let state = asked["result"]["requestState"].as_str().unwrap();
    let key = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({ (key): { "action": "accept", "content": { "name": "Ada" } } });
    let retry = |state: &str| {
        answer(json!({ "name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers }))
    };
    let greeted = retry(state);
    assert_eq!(greeted["result"]["content"][0]["text"], "hello Ada", "{greeted}");
    let flipped = format!("{}{}", if state.starts_with('A') { 'B' } else { 'A' }, &state[1..]);
    assert_eq!(retry(&flipped)["error"]["code"], -32602);
}
