//! `linchpin gateway`: the hub as one MCP server on standard input and output, for clients that start their servers. Uses
//! the running hub, or runs the hub in this process.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use clap::Args;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::CommandContext;
use crate::config::{HubPaths, RunningHub, env_variable};
use crate::error::{CliError, CliErrorKind};
use crate::serve::{self, ServeOptions, gateway_socket};

/// Environment variable with the lineage markers of the processes that a hub has started.
const LINEAGE_VARIABLE: &str = "LINCHPIN_LINEAGE";
/// Maximum number of attempts to find the hub or to run it: another process may be starting or stopping one.
const MAX_ATTEMPTS: u32 = 100;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Options of `linchpin gateway`.
#[derive(Args, Debug)]
pub(crate) struct GatewayArgs {
    /// Agent in whose name the client acts, by name or id: with its tools and its approval mode. Default: the local user,
    /// who needs no approval
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

pub(crate) async fn run(context: &CommandContext, args: GatewayArgs) -> Result<(), CliError> {
    if context.hub.is_some() {
        let text = "the gateway on stdio uses the local hub: omit --hub, or give the client the URL of the hub followed by /mcp";
        return Err(CliError::usage(text));
    }
    let paths = context.paths()?;
    reject_own_server(&paths)?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        if let Some(running) = paths.running() {
            return connect(&paths, running, args.agent).await;
        }
        let options = ServeOptions::default();
        match serve::run_on_stdio(context.location(), options, args.agent.clone()).await {
            // Another process has just started a hub.
            Err(error) if error.kind == CliErrorKind::HubRunning && attempts < MAX_ATTEMPTS => {
                sleep(RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}

/// Fails if the hub has started this process as one of its servers: its tools would be its own tools, without end.
fn reject_own_server(paths: &HubPaths) -> Result<(), CliError> {
    let (Some(lineage), Ok(guard)) =
        (env_variable(LINEAGE_VARIABLE), std::fs::read_to_string(paths.guard_file()))
    else {
        return Ok(());
    };
    let (lineage, own) = (lineage.to_string_lossy().into_owned(), guard.trim());
    if own.is_empty() || !lineage.split(':').any(|marker| marker == own) {
        return Ok(());
    }
    let text = "the hub has started this command as one of its servers, and a hub cannot be its own server: remove \
                the server that runs `linchpin gateway`";
    Err(CliError::usage(text))
}

/// Connects standard input and output to the running hub until one side ends.
async fn connect(paths: &HubPaths, running: RunningHub, agent: Option<String>) -> Result<(), CliError> {
    let path = paths.gateway_socket();
    let copied = spawn_blocking(move || {
        let opened = gateway_socket::connect(&path, &running.token, agent)
            .map_err(|error| lost_hub(&running, &error))?;
        let stream = opened.map_err(|rejection| CliError::new(CliErrorKind::Other, rejection))?;
        copy_messages(&stream).map_err(|error| lost_hub(&running, &error))
    });
    copied.await.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?
}

/// Copies standard input to the hub and its messages to standard output. Returns when the hub has closed the connection,
/// which follows the end of the input.
fn copy_messages(stream: &UnixStream) -> io::Result<()> {
    let to_hub = stream.try_clone()?;
    // This thread may wait for input when the process ends.
    thread::Builder::new().name("linchpin-input".into()).spawn(move || {
        let _ = copy(io::stdin().lock(), &to_hub); // an error ends the connection, too
        let _ = to_hub.shutdown(Shutdown::Write);
    })?;
    match copy(stream, io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // the client is gone
        copied => copied,
    }
}

/// Copies bytes as they arrive.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn lost_hub(running: &RunningHub, error: &io::Error) -> CliError {
    let text = format!(
        "the connection to the hub at {} (process {}) failed: {error}; start this command again",
        running.url, running.pid
    );
    CliError::new(CliErrorKind::Other, text)
}
