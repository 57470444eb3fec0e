//! The guard: a small second process that waits for the end of the hub, in whatever way it comes, and then ends every
//! program that the hub has started. A file keeps the hub's mark, for the case that both are killed at once.

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

use crate::sync::lock;

/// The argument with which a program becomes the guard: it calls [`stand`], and does nothing else.
pub const COMMAND: &str = "__guard";
/// How long to wait before another guard is started, if the last one has lived no longer than that.
const PAUSE: Duration = Duration::from_millis(100);
/// A mark is shorter.
const LONGEST: u64 = 1 << 10;

/// The hub's side of the guard. Dropping it ends everybody who carries its lineage, and waits for that.
pub struct Guard {
    lineage: Lineage,
    held: Arc<Held>,
    thread: Option<JoinHandle<()>>,
    /// Locked for as long as the hub runs. The lock is the process's own, so that programs which are just being
    /// started when it is killed do not hold it.
    _file: File,
}

struct Held {
    /// Its end is what the guard waits for. `None` when the guard is to end.
    pipe: Mutex<Option<ChildStdin>>,
    over: Condvar,
}

impl Guard {
    /// Ends what the last hub with this file has left behind, and starts a guard for this one: `program`, a full path,
    /// with [`COMMAND`]. For the program that asks that is best `/proc/self/exe`. Blocks, for two seconds at most.
    pub fn start(program: &Path, file: &Path) -> io::Result<Self> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("`{}` cannot be used: {error}", file.display()))
        };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).mode(0o600).open(file).map_err(failed)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::AGAIN | Errno::ACCESS => failed(io::Error::new(
                ErrorKind::ResourceBusy,
                "another hub runs on the same data; end it, or give this one a directory of its own",
            )),
            error => failed(error.into()),
        })?;
        let lineage = Lineage::unique();
        turn_over(&mut file, &lineage).map_err(failed)?;
        let (child, pipe) = post(program, &lineage)?;
        let held = Arc::new(Held { pipe: Mutex::new(Some(pipe)), over: Condvar::new() });
        let (keeps, program, of) = (held.clone(), program.to_owned(), lineage.clone());
        let thread = std::thread::Builder::new().name("linchpin-guard".into());
        let thread = thread.spawn(move || keeps.keep(Some(child), || post(&program, &of)))?;
        Ok(Guard { lineage, held, thread: Some(thread), _file: file })
    }

    /// What every program that the hub starts has to carry.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.held.pipe).take();
        self.held.over.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it does not panic
        }
    }
}

impl Held {
    /// Sees to it that there is a guard.
    fn keep(&self, mut child: Option<Child>, post: impl Fn() -> io::Result<(Child, ChildStdin)>) {
        loop {
            let begun = Instant::now();
            if let Some(child) = &mut child {
                let _ = child.wait(); // nobody else waits for it
            }
            let pause = if begun.elapsed() < PAUSE { PAUSE } else { Duration::ZERO };
            let waited = self.over.wait_timeout_while(lock(&self.pipe), pause, |pipe| pipe.is_some());
            let (mut pipe, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if pipe.is_none() {
                return;
            }
            tracing::warn!("there is no guard any more; another one is started");
            child = match post() {
                Ok((child, end)) => {
                    *pipe = Some(end);
                    Some(child)
                }
                Err(error) => {
                    tracing::error!(%error, "no guard can be started; it is tried again");
                    None
                }
            };
        }
    }
}

/// Ends whoever carries the mark in the file, and writes a new one.
fn turn_over(file: &mut File, lineage: &Lineage) -> io::Result<()> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    // Whatever else stands there was never carried: it is written before anything is started.
    if let Some(last) = str::from_utf8(&text).ok().and_then(|text| Lineage::parse(text.trim_end())) {
        let ended = last.end();
        if ended > 0 {
            tracing::warn!(ended, "programs that the last hub had left behind were ended");
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{lineage}")
}

/// Starts a guard. It is in a process group of its own, so that what is typed at the hub's terminal does not reach it.
fn post(program: &Path, lineage: &Lineage) -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(program);
    // Without the hub's environment, which may hold secrets: the guard needs none of it.
    command.arg0("linchpin").arg(COMMAND).env_clear().current_dir("/").process_group(0);
    // Its output is nobody's: whoever reads the hub's must not wait for the guard.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("`{} {COMMAND}` cannot be started: {error}", program.display()))
    })?;
    let mut pipe = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
    // If it has ended already, whoever waits for it notices.
    let _ = writeln!(pipe, "{lineage}");
    Ok((child, pipe))
}

/// Stands guard: waits until the hub has ended, and ends everybody who carries the mark that the hub has written to
/// standard input. The other end of it is open as long as the hub lives, or a program that it is just starting.
pub fn stand() {
    let mut mark = String::new();
    let read = io::stdin().read_to_string(&mut mark);
    if let Some(lineage) = read.ok().and_then(|_| Lineage::parse(mark.trim_end())) {
        lineage.end();
    }
}
