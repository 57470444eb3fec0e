//! Programs that are started and surely end: the suite, with a limit on its time, and our server, with the lane.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::command::root;

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a program with its output in a file; `false` when it failed or took too long.
pub(super) fn run_within(command: &mut Command, log: &Path, limit: Duration) -> anyhow::Result<bool> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = file.try_clone().context("cannot write to one file twice")?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let child =
        command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut child = Ended(child);
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.0.try_wait().context("cannot wait for the suite")? {
            return Ok(status.success());
        }
        sleep(LOOK);
    }
    Ok(false)
}

/// A program that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `conformance-server`.
pub(super) struct Server {
    _child: Ended,
    pub(super) url: String,
}

impl Server {
    /// Starts one on a free port, with what it says on standard error in a file.
    pub(super) fn start(log: &Path) -> anyhow::Result<Self> {
        let program = root().join("target/debug/conformance-server");
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&program);
        command.args(["--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let mut child =
            Ended(command.spawn().with_context(|| format!("cannot start {}", program.display()))?);
        let mut url = String::new();
        let output = child.0.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut url).context("the server's address cannot be read")?;
        if !url.starts_with("http://") {
            bail!("the server did not start: what it said is in {}", log.display());
        }
        Ok(Server { _child: child, url: url.trim().to_owned() })
    }
}
