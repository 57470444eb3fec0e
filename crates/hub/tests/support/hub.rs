//! A hub with a separate data directory, and commands for it.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses only some of the helpers")]

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{LINCHPIN, Run, run_command};

const HUB_TIMEOUT: Duration = Duration::from_secs(30);

/// Data directory and environment of a hub.
pub(crate) struct Home {
    folder: TempDir,
    /// Environment variables.
    variables: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Home { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// Creates a home with a PostgreSQL database.
    pub(crate) fn with_database(database: String) -> Self {
        Self::new().with("LINCHPIN_DATABASE", database)
    }

    /// Adds an environment variable.
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

    /// Writes the configuration file.
    pub(crate) fn write(&self, text: &str) {
        linchpin_hub_core::private_file::write(
            &self.config(),
            text.as_bytes(),
            &linchpin_hub_core::platform::SystemPlatform,
        )
        .unwrap();
    }

    /// Runs a command for this hub.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with("", arguments)
    }

    /// Runs a command with standard input.
    pub(crate) fn run_with(&self, input: &str, arguments: &[&str]) -> Run {
        let data = self.data();
        let place = ["--data-dir", data.to_str().unwrap()];
        run_command(input, &self.variables(), &[&place, arguments].concat())
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).expect_output(0, &[]).stdout
    }

    /// Runs a command that must succeed, with JSON output.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[&["--json"], arguments].concat()).expect_output(0, &[]).json()
    }

    /// Changes the database while no hub runs, as another program would.
    pub(crate) fn sql(&self, statement: &str) {
        let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit()";
        let database = self.data().join("hub.db");
        let done =
            Command::new("python3").args(["-c", script]).arg(database).arg(statement).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Starts a hub and waits until it is ready.
    pub(crate) fn start(&self) -> Hub {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Hub {
        self.start_through(&["env"], arguments)
    }

    /// Starts a hub through another program that executes it.
    pub(crate) fn start_through(&self, program: &[&str], arguments: &[&str]) -> Hub {
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

/// Running hub.
pub(crate) struct Hub {
    child: Child,
    pub(crate) url: String,
    stdout: BufReader<std::process::ChildStdout>,
    log: Receiver<String>,
    said: String,
}

impl Hub {
    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for a log line that contains a text.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self
                .log
                .recv_timeout(HUB_TIMEOUT)
                .unwrap_or_else(|_| panic!("{text:?} is missing in:\n{}", self.said));
            self.said.push_str(&line);
            self.said.push('\n');
            if line.contains(text) {
                return line;
            }
        }
    }

    fn end_of_log(&mut self) -> String {
        while let Ok(line) = self.log.recv_timeout(HUB_TIMEOUT) {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        std::mem::take(&mut self.said)
    }

    /// Stops the hub with a signal. Returns its exit status and its whole output.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits until a hub that was signalled exits.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
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

/// Returns whether only the owner may read a file.
pub(crate) fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    matches!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600 | 0o700)
}

/// Demo server over HTTP, stopped on drop.
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
