//! Child processes with a guaranteed end: the suite, with a time limit, and our server, which ends with its lane.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::command::root;

/// Interval for polling whether a program has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a program with its output in a file. Returns `false` if it failed or exceeded the time limit.
pub(super) fn run_within(command: &mut Command, log: &Path, limit: Duration) -> anyhow::Result<bool> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = file.try_clone().context("cannot duplicate the file handle")?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let child =
        command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut child = KillOnDrop(child);
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.0.try_wait().context("cannot wait for the suite")? {
            return Ok(status.success());
        }
        sleep(POLL_INTERVAL);
    }
    Ok(false)
}

/// Child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Running `conformance-server` or `conformance_gateway`.
pub(super) struct Server {
    _child: KillOnDrop,
    pub(super) url: String,
}

impl Server {
    /// Starts a server on a free port, with its standard error in a file.
    pub(super) fn start(log: &Path) -> anyhow::Result<Self> {
        Self::start_program("target/debug/conformance-server", ["--port", "0"], log)
    }

    /// Starts the gateway of a hub in front of a server.
    pub(super) fn start_gateway(log: &Path, upstream: &str) -> anyhow::Result<Self> {
        Self::start_program("target/debug/examples/conformance_gateway", ["--upstream", upstream], log)
    }

    fn start_program(program: &str, arguments: [&str; 2], log: &Path) -> anyhow::Result<Self> {
        let program = root().join(program);
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let mut child =
            KillOnDrop(command.spawn().with_context(|| format!("cannot start {}", program.display()))?);
        let mut url = String::new();
        let output = child.0.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut url).context("cannot read the address of the server")?;
        if !url.starts_with("http://") {
            bail!("the server did not start: see {}", log.display());
        }
        Ok(Server { _child: child, url: url.trim().to_owned() })
    }
}
