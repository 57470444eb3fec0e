//! Upstream server in a process of its own: tools `echo` and `large`, and fifty dummy tools.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, anyhow};
use linchpin::{Server, args};

use crate::dummy_tools::add_dummy_tools;

/// Argument with which a benchmark starts itself as the upstream server.
pub const ARGUMENT: &str = "serve-upstream";
/// Second argument for a server on stdio. Default: over HTTP.
pub const STDIO: &str = "stdio";
/// Number of tools of the server.
pub const TOOLS: usize = 52;
/// Length of the result of the tool `large` in bytes.
const LARGE_RESULT: usize = 64 << 10;

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

/// Serves the tools until the process is killed, if it was started as the upstream server. Otherwise returns `false`.
///
/// # Errors
///
/// Fails if the server cannot listen.
pub fn serve_if_requested() -> anyhow::Result<bool> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return Ok(false);
    }
    let on_stdio = arguments.next().as_deref() == Some(STDIO);
    tokio::runtime::Runtime::new()?.block_on(serve(on_stdio)).map_err(|error| anyhow!("{error}"))?;
    Ok(true)
}

#[expect(clippy::print_stdout, reason = "the parent process reads the URL")]
async fn serve(on_stdio: bool) -> linchpin::Result {
    let large = "x".repeat(LARGE_RESULT);
    let server = Server::new("upstream", "1")
        .tool("echo", "Echo the message back", |Echo { message }| async move { message })
        .tool("large", "Return 64 KiB of text", move || {
            let large = large.clone();
            async move { large }
        });
    let server = add_dummy_tools(server);
    if on_stdio {
        return server.run().await;
    }
    let listener = server.http().bind("127.0.0.1:0").await?;
    println!("{}", listener.url());
    listener.run_until(std::future::pending()).await
}
