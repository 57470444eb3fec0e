//! Gateways that `bench-gateway` compares, each a process of its own: the hub, and npm's `mcp-proxy`.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::upstream;

/// npm package of the compared proxy, with its version.
const MCP_PROXY: &str = "mcp-proxy@6.7.19";
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Rate limit of the agent: the highest that can be set, so that it is consumed but never exceeded.
const CALLS_PER_MINUTE: &str = "100000";

/// Process that is killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait()); // it may have ended already
    }
}

/// Running hub with an agent that may call the tools of one server.
pub struct Hub {
    process: Process,
    folder: TempDir,
    program: PathBuf,
    /// URL of the gateway.
    pub url: String,
    /// Token of the agent.
    pub token: String,
}

impl Hub {
    /// Starts the hub of the workspace with a server at `upstream`. The server has a bearer credential, and arguments
    /// and results of calls are stored.
    ///
    /// # Errors
    ///
    /// Fails if the hub cannot be built or started.
    pub fn start(upstream: &str) -> anyhow::Result<Self> {
        let program = build_hub()?;
        let folder = tempfile::tempdir()?;
        let mut config = OpenOptions::new()
            .mode(0o600)
            .create_new(true)
            .write(true)
            .open(folder.path().join("linchpin.toml"))?;
        config.write_all(b"[egress]\nallow = [\"127.0.0.0/8\"]\n")?;
        let mut command = Command::new(&program);
        command.arg("--data-dir").arg(folder.path()).args(["serve", "--listen", "127.0.0.1:0"]);
        let log = File::create(folder.path().join("log"))?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let output = child.stdout.take().context("no output of the hub")?;
        let mut hub =
            Hub { process: Process(child), folder, program, url: String::new(), token: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.split_ascii_whitespace().find(|word| word.starts_with("http://"));
        let address = address.with_context(|| format!("the hub did not start: {line:?}"))?;
        hub.url = format!("{}/mcp", address.trim_end_matches('/'));
        hub.add_server_and_agent(upstream)?;
        Ok(hub)
    }

    fn add_server_and_agent(&mut self, upstream: &str) -> anyhow::Result<()> {
        self.command(&["server", "add", "Up", "--url", upstream, "--auth", "bearer"], "")?;
        self.command(&["server", "credential", "set", "up"], "an upstream token of a usual length\n")?;
        self.command(&["server", "sync", "up"], "")?;
        let options = ["--server", "up", "--approval", "auto", "--calls-per-minute", CALLS_PER_MINUTE];
        self.command(&[&["agent", "add", "Bench"][..], &options].concat(), "")?;
        let token = self.command(&["token", "add", "bench", "--agent", "Bench"], "")?;
        self.token = token["token"].as_str().context("the token is missing")?.into();
        Ok(())
    }

    /// Executes a command of the command line and returns its JSON output.
    fn command(&self, arguments: &[&str], input: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.folder.path()).arg("--json").args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "`linchpin {}` failed: its error is above", arguments.join(" "));
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default()) // some commands print nothing
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// Builds the hub and returns the path of its binary.
fn build_hub() -> anyhow::Result<PathBuf> {
    ensure!(!cfg!(debug_assertions), "run the benchmark with --release");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--release", "-p", "linchpin-hub"]).current_dir(workspace());
    ensure!(command.status()?.success(), "the hub cannot be built: the error is above");
    Ok(std::env::current_exe()?.with_file_name("linchpin"))
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Running `mcp-proxy` in front of the upstream server, which it starts on stdio.
pub struct McpProxy {
    process: Process,
    /// URL of its MCP endpoint.
    pub url: String,
}

impl McpProxy {
    /// Installs the proxy and starts it.
    ///
    /// # Errors
    ///
    /// Fails if npm or node is missing, or the proxy does not start.
    pub fn start() -> anyhow::Result<Self> {
        let folder = workspace().join("target/bench/mcp-proxy");
        std::fs::create_dir_all(&folder)?;
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        let installed = install.arg(&folder).arg(MCP_PROXY).stdout(Stdio::null()).status();
        ensure!(installed.context("npm is missing")?.success(), "npm cannot install {MCP_PROXY}");
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("node");
        command.arg(folder.join("node_modules/.bin/mcp-proxy"));
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--"]);
        command.arg(std::env::current_exe()?).args([upstream::ARGUMENT, upstream::STDIO]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut proxy = McpProxy { process: Process(child), url: format!("http://127.0.0.1:{port}/mcp") };
        let begin = Instant::now();
        // It prints nothing when it begins to listen.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = proxy.process.0.try_wait()? {
                bail!("mcp-proxy has ended: {status}");
            }
            ensure!(begin.elapsed() < START_TIMEOUT, "mcp-proxy does not listen on port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }
}
