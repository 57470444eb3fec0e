//! The functions are callable by their names and arguments, and have the descriptions of their doc comments.

use std::io::Write;
use std::process::{Command, Stdio};

use spec_check::Conversation;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

#[test]
fn a_note_is_saved_read_and_summarized() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_attributes"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let request = |id: u8, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{META}{params}}}}}"#) + "\n"
    };
    let input = [
        request(1, "tools/list", ""),
        request(2, "tools/call", r#","name":"save","arguments":{"name":"milk","text":"buy some"}"#),
        request(3, "tools/call", r#","name":"save","arguments":{"name":"milk","text":""}"#),
        request(4, "resources/read", r#","uri":"notes://milk""#),
        request(5, "resources/read", r#","uri":"notes://eggs""#),
        request(6, "prompts/get", r#","name":"summarize","arguments":{"name":"milk"}"#),
    ];
    let mut conversation = Conversation::new();
    conversation.record_sent(input.concat());
    server.stdin.take().unwrap().write_all(input.concat().as_bytes()).unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = output.lines().collect();
    for line in &answers {
        assert_eq!(conversation.check_received(line), Ok(()));
    }
    for (answer, expected) in answers.iter().zip([
        r#""description":"Saves a note under a name""#,
        r#""structuredContent":{"count":1}"#,
        "the text must not be empty",
        r#""text":"buy some""#,
        "Resource not found: notes://eggs",
        "Summarize the note milk in a short style",
    ]) {
        assert!(answer.contains(expected), "{expected} is missing in {answer}");
    }
    assert_eq!(answers.len(), 6, "{output}");
    assert!(answers[0].contains(r#""description":"Name of the note""#), "{output}");
}
