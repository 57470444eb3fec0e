//! The hub, run with a data directory of its own, and commands against it.
#![allow(clippy::allow_attributes, dead_code, reason = "every test file uses its part of it")]

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{LINCHPIN, Run, spawned};

const PATIENCE: Duration = Duration::from_secs(30);

/// Where a hub keeps everything.
pub(crate) struct Home {
    folder: TempDir,
    /// Variables of the environment.
    variables: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Home { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// With everything in another database than a file.
    pub(crate) fn on(database: String) -> Self {
        Self::new().with("LINCHPIN_DATABASE", database)
    }

    /// With a variable in the environment.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.path().join("data.keys")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.data().join("linchpin.toml")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the operator's file.
    pub(crate) fn write(&self, text: &str) {
        linchpin_hub_core::private::write(&self.config(), text.as_bytes(), &linchpin_hub_core::world::System)
            .unwrap();
    }

    /// Runs a command about this hub.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with("", arguments)
    }

    /// The same with something to read.
    pub(crate) fn run_with(&self, input: &str, arguments: &[&str]) -> Run {
        let data = self.data();
        let place = ["--data-dir", data.to_str().unwrap()];
        spawned(input, &self.variables(), &[&place, arguments].concat())
    }

    /// Runs a command that works.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).said(0, &[]).stdout
    }

    /// Runs a command that works, and reads what it prints for programs.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[&["--json"], arguments].concat()).said(0, &[]).json()
    }

    /// Starts a hub here, and waits until it is ready.
    pub(crate) fn start(&self) -> Hub {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Hub {
        self.start_by(&["env"], arguments)
    }

    /// Starts a hub by another program, which becomes the hub.
    pub(crate) fn start_by(&self, program: &[&str], arguments: &[&str]) -> Hub {
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .arg(LINCHPIN)
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs(self.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, log) = sync_channel(10_000);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        stdout.read_line(&mut url).unwrap();
        let mut hub = Hub { child, url: url.trim().to_owned(), stdout, log, said: String::new() };
        let log = if hub.url.starts_with("http://127.0.0.1:") { String::new() } else { hub.end_of_log() };
        assert!(log.is_empty() && !hub.url.is_empty(), "{log}{}", hub.url);
        hub
    }
}

/// A hub that runs.
pub(crate) struct Hub {
    child: Child,
    pub(crate) url: String,
    stdout: BufReader<std::process::ChildStdout>,
    log: Receiver<String>,
    said: String,
}

impl Hub {
    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the log says something.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self
                .log
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("{text:?} is missing in:\n{}", self.said));
            self.said.push_str(&line);
            self.said.push('\n');
            if line.contains(text) {
                return line;
            }
        }
    }

    fn end_of_log(&mut self) -> String {
        while let Ok(line) = self.log.recv_timeout(PATIENCE) {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        std::mem::take(&mut self.said)
    }

    /// Asks it to end, and waits for that: how it ended, and everything that it wrote.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end, which somebody has asked for.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let mut written = self.end_of_log();
        self.stdout.read_to_string(&mut written).unwrap();
        (status, written)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Whether only the owner may read a file.
pub(crate) fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    matches!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600 | 0o700)
}

/// A demo server over HTTP, until it is dropped.
pub(crate) struct Demo {
    child: Child,
    pub(crate) url: String,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(LINCHPIN)
            .args(["demo", "--http", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Demo { child, url: line.trim().to_owned() }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Writes a file that others can read.
pub(crate) fn write_open(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
