//! Upstream server with one tool, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, anyhow};
use linchpin::{Server, args};

/// Argument with which a benchmark starts itself as the upstream server.
const ARGUMENT: &str = "serve-upstream";

#[args]
struct Echo {
    message: String,
}

/// Upstream process. It is killed on drop.
pub struct Upstream {
    process: Child,
    /// URL of the MCP endpoint.
    pub url: String,
}

impl Upstream {
    /// Starts this program once more as an upstream server.
    pub fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg(ARGUMENT).stdout(Stdio::piped()).spawn()?;
        let (mut url, output) = (String::new(), process.stdout.take().context("no output of the upstream")?);
        BufReader::new(output).read_line(&mut url)?;
        let url = url.trim().to_owned();
        anyhow::ensure!(!url.is_empty(), "the upstream server did not start");
        Ok(Upstream { process, url })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait()); // it may have ended already
    }
}

/// Serves the tool `echo` until the process is killed, if it was started as the upstream server. Otherwise returns
/// `false`.
pub fn serve_if_requested() -> anyhow::Result<bool> {
    if std::env::args().nth(1).as_deref() != Some(ARGUMENT) {
        return Ok(false);
    }
    tokio::runtime::Runtime::new()?.block_on(serve())?;
    Ok(true)
}

#[expect(clippy::print_stdout, reason = "the parent process reads the URL")]
async fn serve() -> anyhow::Result<()> {
    let server = Server::new("upstream", "1").tool("echo", "", |Echo { message }| async move { message });
    let listener = server.http().bind("127.0.0.1:0").await.map_err(|error| anyhow!("{error}"))?;
    println!("{}", listener.url());
    listener.run_until(std::future::pending()).await.map_err(|error| anyhow!("{error}"))
}
