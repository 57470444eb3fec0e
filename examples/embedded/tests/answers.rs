//! Each request gets a response without a handshake; notifications get none.

use std::process::Command;

use spec_check::Conversation;

#[test]
fn each_message_has_its_answer() {
    let messages = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{}}}"#,
    ];
    let mut conversation = Conversation::new();
    conversation.record_sent(messages.join("\n"));
    let output = Command::new(env!("CARGO_BIN_EXE_embedded")).args(messages).output().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = output.lines().collect();
    for line in &answers {
        assert_eq!(conversation.check_received(line), Ok(()));
    }
    assert_eq!(answers.len(), 2, "{output}");
    assert!(answers[0].contains(r#""text":"Hello, Ada!""#), "{output}");
    assert!(
        answers[1].contains("missing field `name`") && answers[1].contains(r#""isError":true"#),
        "{output}"
    );
}
