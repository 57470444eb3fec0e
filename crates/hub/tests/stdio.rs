//! `linchpin demo` with a pipe, a socket, a file and a terminal as standard input and output.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use spec_check::Conversation;

/// A session of one revision, a request of another, a call that waits, and a broken line.
const INPUT: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"#,
    r#""clientInfo":{"name":"test","version":"0"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"countdown","arguments":{"from":3,"pause_ms":1}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}"#,
    "\n",
    "broken\n",
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"#,
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    "\n",
);

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linchpin"));
    command.arg("demo").stderr(Stdio::inherit());
    command
}

fn assert_answered(output: &str) {
    let mut conversation = Conversation::new();
    conversation.record_sent(INPUT);
    for line in output.lines() {
        assert_eq!(conversation.check_received(line), Ok(()));
    }
    let answer = |id: &str| {
        let found = output.lines().find(|line| line.contains(id) && line.contains("\"result\""));
        found.unwrap_or_else(|| panic!("{id} was not answered in:\n{output}"))
    };
    assert!(answer("\"id\":0").contains("linchpin-demo"));
    assert!(answer("\"id\":1").contains("Counted down from 3."));
    assert!(answer("\"id\":2").contains("\"sum\":42.0"));
    assert!(answer("\"id\":3").contains("\"resultType\":\"complete\""));
    assert!(output.lines().any(|line| line.contains("-32700")), "{output}");
}

#[test]
fn a_pipe() {
    let mut child = demo().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(INPUT.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_answered(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn a_socket_as_node_hosts_give_it() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let far: OwnedFd = far.into();
    let mut child = demo().stdin(far.try_clone().unwrap()).stdout(far).spawn().unwrap();
    near.write_all(INPUT.as_bytes()).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert!(child.wait().unwrap().success());
    let mut output = String::new();
    near.read_to_string(&mut output).unwrap();
    assert_answered(&output);
}

#[test]
fn a_file() {
    let folder = std::env::temp_dir().join(format!("linchpin-stdio-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("input"), folder.join("output"));
    std::fs::write(&input, INPUT).unwrap();
    let status =
        demo().stdin(File::open(&input).unwrap()).stdout(File::create(&output).unwrap()).status().unwrap();
    assert!(status.success());
    let written = std::fs::read_to_string(&output).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_answered(&written);
}

/// Runs the server on a terminal, created with Python's standard library.
const TERMINAL: &str = r#"
import os, pty, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
settings = termios.tcgetattr(terminal)
settings[3] &= ~termios.ECHO
termios.tcsetattr(terminal, termios.TCSANOW, settings)
for line in sys.stdin.buffer:
    os.write(terminal, line)
os.write(terminal, b"\x04")  # end of input, at the beginning of a line
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn a_terminal() {
    let mut child = Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_linchpin"), "demo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 gives this test its terminal: cargo xtask test says how to install it");
    child.stdin.take().unwrap().write_all(INPUT.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_answered(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn a_client_that_leaves_ends_the_server_quietly() {
    let mut child =
        demo().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    // The server may exit before everything is written.
    let _ = child.stdin.take().unwrap().write_all(INPUT.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
