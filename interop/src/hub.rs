//! The hub as a process with its own data directory, and its command line.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::TEST_TIMEOUT;
use crate::peer::{RunningServer, peer};
use crate::rest_client::RestClient;

/// Returns the path of the `linchpin` binary, which is built next to the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("linchpin");
    assert!(
        program.exists(),
        "{} is missing: build it with `cargo build -p linchpin-hub`; `cargo xtask test` does so automatically",
        program.display()
    );
    program
}

/// Temporary directory of a hub.
pub struct HubDirectory(TempDir);

/// Result of a command.
pub struct CommandOutput {
    /// Exit code; 0 on success.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl HubDirectory {
    /// Creates a directory with a configuration that permits connections to this machine.
    pub fn new() -> Self {
        let home = Self::empty();
        home.write("[egress]\nallow = [\"127.0.0.0/8\"]\n");
        home
    }

    /// Creates an empty directory.
    pub fn empty() -> Self {
        HubDirectory(tempfile::tempdir().unwrap())
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Writes the configuration file.
    pub fn write(&self, text: &str) {
        std::fs::create_dir_all(self.data()).unwrap();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(self.data().join("linchpin.toml")).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.arg("--data-dir").arg(self.data()).env_remove("LINCHPIN_TOKEN").env_remove("RUST_LOG");
        command
    }

    /// Runs a command.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with("", arguments)
    }

    /// Runs a command with `input` on standard input.
    #[track_caller]
    pub fn run_with(&self, input: &str, arguments: &[&str]) -> CommandOutput {
        let pipes = (Stdio::piped(), Stdio::piped(), Stdio::piped());
        let mut command = self.command();
        command.args(arguments).stdin(pipes.0).stdout(pipes.1).stderr(pipes.2);
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()); // fails if the command does not read it
        let (id, (done, ended)) = (Pid::from_child(&child), sync_channel(1));
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(TEST_TIMEOUT) else {
            kill_process(id, Signal::KILL).unwrap();
            panic!("the command does not exit: {arguments:?}");
        };
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that must succeed and returns its output.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).expect_code(0).stdout
    }

    /// Runs a command that must succeed with `--json` and returns the parsed output.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[&["--json"], arguments].concat())).unwrap()
    }

    /// Runs a command that must fail and returns its error message.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> String {
        self.run(arguments).expect_code(1).stderr
    }

    /// Starts the hub and waits until it is ready.
    #[track_caller]
    pub fn start(&self) -> Hub {
        let (begun, ready) = (Instant::now(), self.0.path().join("ready.json"));
        let mut command = self.command();
        command.args(["--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            errors.read_to_string(&mut log).map(|_| log).unwrap_or_default()
        });
        let (told, url) = sync_channel(1);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut url = String::new();
            let _ = output.read_line(&mut url).map(|_| told.send(url)); // empty at the end of output
        });
        let (url, took) = (url.recv_timeout(TEST_TIMEOUT).unwrap_or_default(), begun.elapsed());
        let mut hub =
            Hub { child, log: Some(log), startup_time: took, caller: RestClient::new("http://", "") };
        assert!(url.starts_with("http://"), "the hub is not ready: {}", hub.close(Signal::KILL));
        let ready: Value = serde_json::from_slice(&std::fs::read(ready).unwrap()).unwrap();
        assert_eq!(ready["url"], url.trim());
        hub.caller = RestClient::new(url.trim(), ready["token"].as_str().unwrap());
        hub
    }
}

impl Default for HubDirectory {
    fn default() -> Self {
        Self::new()
    }
}

impl CommandOutput {
    #[track_caller]
    fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }
}

/// Running hub. As a REST client it is the local user.
pub struct Hub {
    child: Child,
    log: Option<std::thread::JoinHandle<String>>,
    /// Time from the start until it was ready.
    pub startup_time: Duration,
    caller: RestClient,
}

impl Deref for Hub {
    type Target = RestClient;

    fn deref(&self) -> &RestClient {
        &self.caller
    }
}

impl Hub {
    /// Shuts the hub down gracefully and returns its log.
    pub fn end(mut self) -> String {
        self.close(Signal::TERM)
    }

    fn close(&mut self, signal: Signal) -> String {
        let Some(log) = self.log.take() else { return String::new() };
        let _ = kill_process(Pid::from_child(&self.child), signal); // fails if it has already exited
        let _ = self.child.wait();
        log.join().unwrap()
    }

    /// Returns the resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Adds an agent that may use all tools of these servers. Returns its id and a REST client for it.
    #[track_caller]
    pub fn agent(&self, name: &str, approval: &str, servers: &Value) -> (String, RestClient) {
        let agent = self.post("/agents", json!({ "name": name, "approval": approval, "servers": servers }));
        let id = agent["id"].as_str().unwrap().to_owned();
        let token = self.post(&format!("/agents/{id}/tokens"), json!({ "name": "test" }));
        (id, self.with_token(token["token"].as_str().unwrap()))
    }

    /// Adds a server with a URL and further fields.
    #[track_caller]
    pub fn add(&self, slug: &str, url: &str, more: Value) -> Value {
        self.post("/servers", merge(json!({ "name": slug, "slug": slug, "url": url }), more))
    }

    /// Adds `guarded.py` with a shared token, and syncs its tools.
    #[track_caller]
    pub fn add_guarded(&self, server: &RunningServer, more: Value) {
        self.add("guarded", server.url(), merge(json!({ "authentication": { "type": "bearer" } }), more));
        self.put("/servers/guarded/credential", json!({ "secret": "secret-of-hub" }));
        self.post("/servers/guarded/connect", Value::Null);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let log = self.close(Signal::KILL);
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the hub logged:\n{log}");
        }
    }
}

/// Merges the fields of two objects.
fn merge(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else { panic!("both must be objects") };
    one.extend(other);
    one.into()
}

/// Starts `guarded.py`, which requires authentication.
pub fn start_guarded() -> RunningServer {
    RunningServer::start(&peer("guarded.py"))
}

/// Returns the configuration of `server-everything` on stdio.
pub fn everything_config() -> String {
    let mut command = peer("everything");
    command.push("stdio".into());
    format!("[servers.everything]\ncommand = {:?}\nargs = {:?}\n", command[0], &command[1..])
}
