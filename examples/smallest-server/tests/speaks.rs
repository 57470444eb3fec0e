//! The server responds on standard output and exits successfully at the end of its input.

use std::io::Write;
use std::process::{Command, Stdio};

use spec_check::Conversation;

#[test]
fn a_tool_a_resource_and_a_prompt() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_smallest-server"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = [
        concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
            r#""capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#
        ),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"memory://status"}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"review","arguments":{"language":"Rust"}}}"#,
    ];
    let mut conversation = Conversation::new();
    conversation.record_sent(input.join("\n"));
    server.stdin.take().unwrap().write_all((input.join("\n") + "\n").as_bytes()).unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = output.lines().collect();
    for line in &answers {
        assert_eq!(conversation.check_received(line), Ok(()));
    }
    assert_eq!(answers.len(), 4, "{output}");
    assert!(answers[0].contains(r#""protocolVersion":"2025-06-18""#), "{output}");
    assert!(answers[1].contains(r#""text":"42""#), "{output}");
    assert!(answers[2].contains(r#""text":"ok""#), "{output}");
    assert!(answers[3].contains("Review this Rust code"), "{output}");
}
