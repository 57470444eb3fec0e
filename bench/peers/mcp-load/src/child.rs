//! Server process: start and shutdown.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

/// Starts the server. Its stderr is discarded unless `MCP_LOAD_STDERR` is set.
pub fn spawn(command: &[String], stdio: bool) -> Result<(Child, u32)> {
    let (program, arguments) = command.split_first().context("no command")?;
    let pipe = || if stdio { Stdio::piped() } else { Stdio::null() };
    let mut builder = Command::new(program);
    builder.args(arguments).kill_on_drop(true).stdin(pipe()).stdout(pipe());
    if std::env::var_os("MCP_LOAD_STDERR").is_none() {
        builder.stderr(Stdio::null());
    }
    let child = builder.spawn().with_context(|| format!("cannot start {program}"))?;
    let pid = child.id().context("the server has no process id")?;
    Ok((child, pid))
}

/// Waits up to twenty seconds for the server to exit: callgrind writes its file only on a regular exit.
pub async fn end(mut child: Child, pid: u32, terminate: bool) {
    if terminate {
        // SAFETY: the child has not been reaped, so the process id is still its own.
        unsafe { libc::kill(pid as i32, libc::SIGTERM) };
    }
    if tokio::time::timeout(Duration::from_secs(20), child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}
