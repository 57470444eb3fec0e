//! The hub, run as people run it: its program with a data directory of its own, and commands about it.

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

use crate::PATIENCE;
use crate::peer::{Served, peer};
use crate::rest::Caller;

/// The program, which is built beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("linchpin");
    assert!(
        program.exists(),
        "{} is missing: build it with `cargo build -p linchpin-hub`; `cargo xtask test` does so by itself",
        program.display()
    );
    program
}

/// Where a hub keeps everything.
pub struct Home(TempDir);

/// How a command ended.
pub struct Run {
    /// 0 if it worked.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Home {
    /// An empty one, whose hub may reach servers on this machine.
    pub fn new() -> Self {
        let home = Self::bare();
        home.write("[egress]\nallow = [\"127.0.0.0/8\"]\n");
        home
    }

    /// An empty one.
    pub fn bare() -> Self {
        Home(tempfile::tempdir().unwrap())
    }

    /// The directory of the data.
    pub fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Writes the operator's file.
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
    pub fn run(&self, arguments: &[&str]) -> Run {
        self.run_with("", arguments)
    }

    /// Runs a command that reads this.
    #[track_caller]
    pub fn run_with(&self, input: &str, arguments: &[&str]) -> Run {
        let pipes = (Stdio::piped(), Stdio::piped(), Stdio::piped());
        let mut command = self.command();
        command.args(arguments).stdin(pipes.0).stdout(pipes.1).stderr(pipes.2);
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()); // it need not read
        let (id, (done, ended)) = (Pid::from_child(&child), sync_channel(1));
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(PATIENCE) else {
            kill_process(id, Signal::KILL).unwrap();
            panic!("it does not end: {arguments:?}");
        };
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that works: what it prints.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).ended(0).stdout
    }

    /// Runs a command that works: what it prints for programs.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[&["--json"], arguments].concat())).unwrap()
    }

    /// Runs a command that fails: what it says.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> String {
        self.run(arguments).ended(1).stderr
    }

    /// Starts the hub, and waits until it is ready.
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
            let _ = output.read_line(&mut url).map(|_| told.send(url)); // an end tells as much
        });
        let (url, took) = (url.recv_timeout(PATIENCE).unwrap_or_default(), begun.elapsed());
        let mut hub = Hub { child, log: Some(log), took, caller: Caller::new("http://", "") };
        assert!(url.starts_with("http://"), "the hub is not ready: {}", hub.close(Signal::KILL));
        let ready: Value = serde_json::from_slice(&std::fs::read(ready).unwrap()).unwrap();
        assert_eq!(ready["url"], url.trim());
        hub.caller = Caller::new(url.trim(), ready["token"].as_str().unwrap());
        hub
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Run {
    #[track_caller]
    fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }
}

/// A hub that runs. As a caller it is the person at this machine.
pub struct Hub {
    child: Child,
    log: Option<std::thread::JoinHandle<String>>,
    /// From its start until it was ready.
    pub took: Duration,
    caller: Caller,
}

impl Deref for Hub {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Hub {
    /// Ends it in good order: what it logged.
    pub fn end(mut self) -> String {
        self.close(Signal::TERM)
    }

    fn close(&mut self, signal: Signal) -> String {
        let Some(log) = self.log.take() else { return String::new() };
        let _ = kill_process(Pid::from_child(&self.child), signal); // it may have ended
        let _ = self.child.wait();
        log.join().unwrap()
    }

    /// The bytes that it occupies in memory.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Adds an agent that may use these servers, with all their tools: its id, and itself.
    #[track_caller]
    pub fn agent(&self, name: &str, approval: &str, servers: &Value) -> (String, Caller) {
        let agent = self.post("/agents", json!({ "name": name, "approval": approval, "servers": servers }));
        let id = agent["id"].as_str().unwrap().to_owned();
        let token = self.post(&format!("/agents/{id}/tokens"), json!({ "name": "test" }));
        (id, self.with_token(token["token"].as_str().unwrap()))
    }

    /// Adds a server at a URL, with more fields.
    #[track_caller]
    pub fn add(&self, slug: &str, url: &str, more: Value) -> Value {
        self.post("/servers", both(json!({ "name": slug, "slug": slug, "url": url }), more))
    }

    /// Adds `guarded.py` with a token that all share, and looks at its tools.
    #[track_caller]
    pub fn add_guarded(&self, server: &Served, more: Value) {
        self.add("guarded", server.url(), both(json!({ "authentication": { "type": "bearer" } }), more));
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

/// The fields of two objects.
fn both(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else { panic!("both are objects") };
    one.extend(other);
    one.into()
}

/// `guarded.py`, which wants to know who asks.
pub fn guarded() -> Served {
    Served::start(&peer("guarded.py"))
}

/// What the operator's file says of `server-everything` on standard input and output.
pub fn everything() -> String {
    let mut command = peer("everything");
    command.push("stdio".into());
    format!("[servers.everything]\ncommand = {:?}\nargs = {:?}\n", command[0], &command[1..])
}
