//! Helpers that run `linchpin` with pipes or on a terminal.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses only some of the helpers")]

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// Path of `linchpin`, which is also the demo server.
pub(crate) const LINCHPIN: &str = env!("CARGO_BIN_EXE_linchpin");

pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Parses standard output as one JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// Asserts the exit code, and that standard error contains these texts.
    #[track_caller]
    pub(crate) fn expect_output(self, code: i32, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is missing in:\n{}", self.stderr);
        }
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }
}

/// Runs a command without a terminal and with empty standard input.
pub(crate) fn run(arguments: &[&str]) -> Run {
    run_with("", arguments)
}

/// Runs a command without a terminal, with `input` as standard input.
pub(crate) fn run_with(input: &str, arguments: &[&str]) -> Run {
    run_command(input, &[], arguments)
}

/// Runs a command without a terminal, with these environment variables and empty standard input.
pub(crate) fn run_in(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    run_command("", variables, arguments)
}

/// Starts a command with pipes.
fn start(variables: &[(&str, &str)], arguments: &[&str]) -> Child {
    Command::new(LINCHPIN)
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

pub(crate) fn run_command(input: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut child = start(variables, arguments);
    // The command need not read everything.
    let _ = child.stdin.take().expect("standard input is a pipe").write_all(input.as_bytes());
    let (pid, (done, ended)) = (child.id(), sync_channel(1));
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let output = ended.recv_timeout(COMMAND_TIMEOUT).unwrap_or_else(|_| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the process id is valid");
        let _ = kill_process(pid, Signal::KILL); // it may just have ended
        panic!("the command does not exit: {arguments:?}")
    });
    Run::new(output.expect("the command exits"))
}

/// Runs a command with endless standard input, and terminates it once it reads.
pub(crate) fn run_until_reading(arguments: &[&str]) -> Run {
    let mut child = start(&[], arguments);
    let mut pipe = child.stdin.take().expect("standard input is a pipe");
    let size = rustix::pipe::fcntl_setpipe_size(&pipe, 4_096).expect("the pipe can be resized");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("the process id is valid");
    let (step, steps) = sync_channel(2);
    std::thread::spawn(move || {
        // The pipe is full, so this write succeeds only after the command has read something.
        let written = pipe.write_all(&vec![b' '; size + 1]).map(|()| None);
        step.send(written).ok()?;
        let output = child.wait_with_output().map(Some);
        drop(pipe);
        step.send(output).ok()
    });
    let late = |_| {
        let _ = kill_process(pid, Signal::KILL); // it may just have ended
        panic!("the command does not read or does not exit: {arguments:?}")
    };
    let read = steps.recv_timeout(COMMAND_TIMEOUT).unwrap_or_else(late);
    assert!(matches!(read, Ok(None)), "the command reads: {read:?}");
    kill_process(pid, Signal::TERM).expect("the command runs");
    let output = steps.recv_timeout(COMMAND_TIMEOUT).unwrap_or_else(late).expect("the command exits");
    Run::new(output.expect("the command was terminated"))
}

/// Runs a command on a terminal of 80 columns: waits for each text, then types the input. Everything shown
/// is standard output here.
pub(crate) fn on_terminal(steps: &[(&str, &str)], arguments: &[&str]) -> Run {
    let output = Command::new("python3")
        .args(["-c", TERMINAL, &json!(steps).to_string(), LINCHPIN])
        .args(arguments)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .expect("python3 gives this test its terminal: cargo xtask test says how to install it");
    Run::new(output)
}

const TERMINAL: &str = r#"
import fcntl, json, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
unread = b""
def read():
    global unread
    try:
        data = os.read(terminal, 65536)
    except OSError:
        data = b""
    unread += data
    sys.stdout.buffer.write(data)
    return data
for wait, typed in json.loads(sys.argv[1]):
    while wait.encode() not in unread:
        if not read():
            sys.exit("never seen: " + wait)
    unread = unread.split(wait.encode(), 1)[1]
    os.write(terminal, typed.encode())
while read():
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
