//! Load process of `bench-gateway`: a client that sends the requests which it reads from standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use linchpin::{Client, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::requests::{Latencies, send_requests};
use crate::upstream::TOOLS;

/// Argument with which the benchmark starts itself as a load process. It reads the endpoint from its input.
const ARGUMENT: &str = "send-load";

/// What the client connects to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Endpoint {
    /// URL of the MCP endpoint.
    pub url: String,
    /// Bearer token. Default: none.
    pub token: Option<String>,
    /// Whether the client uses a session, in the newest revision that has them.
    pub session: bool,
}

impl Endpoint {
    async fn connect(&self) -> anyhow::Result<Client> {
        let mut client = Client::http(&self.url).without_cache();
        if let Some(token) = &self.token {
            client = client.header("Authorization", format!("Bearer {token}"));
        }
        if self.session {
            client = client.revisions([Revision::LATEST_SESSION]);
        }
        client.connect().await.with_context(|| format!("cannot connect to {}", self.url))
    }
}

/// Requests that a load process sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Requests {
    /// What each request is.
    pub kind: RequestKind,
    /// Number of requests.
    pub count: usize,
    /// Maximum number of open requests.
    pub in_flight: usize,
}

/// Kind of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// Calls this tool with these arguments.
    Call(String, Value),
    /// Lists the tools.
    List,
    /// Connects one more client and leaves it idle.
    Connect,
}

impl RequestKind {
    async fn send(self, client: Client, endpoint: Arc<Endpoint>, idle: IdleClients) -> anyhow::Result<()> {
        match self {
            RequestKind::Call(tool, arguments) => {
                let result = client.call(&tool, arguments).await?;
                ensure!(result.is_error != Some(true), "the tool {tool} failed: {result:?}");
            }
            RequestKind::List => {
                let tools = client.tools().all().await?.len();
                ensure!(tools == TOOLS, "{tools} tools instead of {TOOLS}");
            }
            RequestKind::Connect => {
                let client = endpoint.connect().await?;
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
            }
        }
        Ok(())
    }
}

type IdleClients = Arc<Mutex<Vec<Client>>>;

/// Load process. It is killed on drop.
pub struct Load {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// Starts this program once more as a load process.
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be started.
    pub fn start(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take().context("no input of the load process")?;
        let output = BufReader::new(process.stdout.take().context("no output of the load process")?);
        let mut load = Load { process, input, output };
        load.send(endpoint)?;
        Ok(load)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn send(&mut self, message: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        Ok(self.input.write_all(line.as_bytes())?)
    }

    /// Sends requests and returns their figures.
    ///
    /// # Errors
    ///
    /// Fails if a request fails.
    pub fn run(&mut self, requests: &Requests) -> anyhow::Result<Latencies> {
        self.send(requests)?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the load process has failed: its error is above");
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait()); // it may have ended already
    }
}

/// Sends requests until the end of input, if this process was started as a load process. Otherwise returns `false`.
///
/// # Errors
///
/// Fails if a line of input is invalid or a request fails.
#[expect(clippy::print_stdout, reason = "the parent process reads the figures")]
pub fn send_if_requested() -> anyhow::Result<bool> {
    if std::env::args().nth(1).as_deref() != Some(ARGUMENT) {
        return Ok(false);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut lines = std::io::stdin().lines();
    let endpoint: Endpoint = serde_json::from_str(&lines.next().context("the endpoint is missing")??)?;
    let (endpoint, idle) = (Arc::new(endpoint), IdleClients::default());
    let client = runtime.block_on(endpoint.connect())?;
    for line in lines {
        let Requests { kind, count, in_flight } = serde_json::from_str(&line?)?;
        let send = || kind.clone().send(client.clone(), endpoint.clone(), idle.clone());
        println!("{}", serde_json::to_string(&runtime.block_on(send_requests(count, in_flight, send))?)?);
    }
    Ok(true)
}
