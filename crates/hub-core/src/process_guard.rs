//! Process guard: a helper process that waits for the end of the hub, even by `SIGKILL`, and then kills every process
//! that the hub has started. A file stores the lineage of the hub, for the case that hub and guard are killed together.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linchpin::client::Lineage;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::lock::lock;

/// Command-line argument that turns a program into the guard: the program calls [`run_guard`], and does nothing else.
pub const COMMAND: &str = "__guard";
/// Delay before the guard is restarted, if the previous one has lived for a shorter time.
const RESTART_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of bytes read from the lineage file, which holds the environment marker of the processes that the
/// previous hub started.
const MAX_LINEAGE_FILE_BYTES: u64 = 1 << 10;

/// Handle to the helper process that kills all server processes when the hub ends. Dropping it kills all processes of
/// its lineage, and waits for that.
pub struct ProcessGuard {
    lineage: Lineage,
    pipe: Arc<GuardPipe>,
    thread: Option<JoinHandle<()>>,
    /// Lock file, which is locked while the hub runs. The lock is owned by the process, so that a child that is being
    /// started when the hub is killed does not hold it.
    _file: File,
}

struct GuardPipe {
    /// Standard input of the guard process, which waits until this pipe is closed. `None` when the guard has to stop.
    stdin: Mutex<Option<ChildStdin>>,
    stopped: Condvar,
}

impl ProcessGuard {
    /// Kills the processes that a previous hub with this file has left, and starts a guard: `program`, an absolute
    /// path, with the argument [`COMMAND`]. A hub passes `/proc/self/exe`. Blocks for at most two seconds.
    pub fn start(program: &Path, file: &Path) -> io::Result<Self> {
        let failed = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("the lock file `{}` cannot be used: {error}", file.display()),
            )
        };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).mode(0o600).open(file).map_err(failed)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::AGAIN | Errno::ACCESS => failed(io::Error::new(
                ErrorKind::ResourceBusy,
                "another hub runs on the same data: stop it, or use another data directory",
            )),
            error => failed(error.into()),
        })?;
        let lineage = Lineage::unique();
        replace_lineage(&mut file, &lineage).map_err(failed)?;
        let (child, pipe) = spawn_guard(program, &lineage)?;
        let shared_pipe = Arc::new(GuardPipe { stdin: Mutex::new(Some(pipe)), stopped: Condvar::new() });
        let (guard_pipe, program, guard_lineage) = (shared_pipe.clone(), program.to_owned(), lineage.clone());
        let thread = std::thread::Builder::new().name("linchpin-guard".into());
        let thread = thread
            .spawn(move || guard_pipe.respawn_loop(Some(child), || spawn_guard(&program, &guard_lineage)))?;
        Ok(ProcessGuard { lineage, pipe: shared_pipe, thread: Some(thread), _file: file })
    }

    /// Returns the lineage: the environment marker by which the guard finds all processes of the hub.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        lock(&self.pipe.stdin).take();
        self.pipe.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the thread does not panic
        }
    }
}

impl GuardPipe {
    /// Restarts the guard process whenever it ends.
    fn respawn_loop(&self, mut child: Option<Child>, spawn: impl Fn() -> io::Result<(Child, ChildStdin)>) {
        loop {
            let started = Instant::now();
            if let Some(child) = &mut child {
                let _ = child.wait(); // only this thread waits for the child
            }
            let delay = if started.elapsed() < RESTART_DELAY { RESTART_DELAY } else { Duration::ZERO };
            let result = self.stopped.wait_timeout_while(lock(&self.stdin), delay, |pipe| pipe.is_some());
            let (mut pipe, _) = result.unwrap_or_else(PoisonError::into_inner);
            if pipe.is_none() {
                return;
            }
            tracing::warn!("process guard ended; restarting");
            child = match spawn() {
                Ok((child, end)) => {
                    *pipe = Some(end);
                    Some(child)
                }
                Err(error) => {
                    tracing::error!(%error, "failed to start process guard; retrying");
                    None
                }
            };
        }
    }
}

/// Kills the processes of the lineage in the file, and writes the new lineage.
fn replace_lineage(file: &mut File, lineage: &Lineage) -> io::Result<()> {
    let mut text = Vec::new();
    file.take(MAX_LINEAGE_FILE_BYTES).read_to_end(&mut text)?;
    // Any other text was never a lineage of a process: the lineage is written before a process is started.
    if let Some(last) = str::from_utf8(&text).ok().and_then(|text| Lineage::parse(text.trim_end())) {
        let killed = last.kill();
        if killed > 0 {
            tracing::warn!(killed, "killed processes left by the previous hub");
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{lineage}")
}

/// Starts the guard process, in its own process group so that signals of the hub's terminal do not reach it.
fn spawn_guard(program: &Path, lineage: &Lineage) -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(program);
    // Without the environment of the hub, which may contain secrets: the guard needs none of it.
    command.arg0("linchpin").arg(COMMAND).env_clear().current_dir("/").process_group(0);
    // No output: a reader of the hub's output must not wait for the guard.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("`{} {COMMAND}` cannot be started: {error}", program.display()))
    })?;
    let mut pipe = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
    // If the guard has ended already, the thread that waits for it notices.
    let _ = writeln!(pipe, "{lineage}");
    Ok((child, pipe))
}

/// Runs the guard: waits until the hub has ended, and kills all processes of the lineage that the hub has written to
/// standard input. The other end of the pipe is open while the hub, or a child that it is just starting, lives.
pub fn run_guard() {
    let mut marker = String::new();
    let read = io::stdin().read_to_string(&mut marker);
    if let Some(lineage) = read.ok().and_then(|_| Lineage::parse(marker.trim_end())) {
        lineage.kill();
    }
}
