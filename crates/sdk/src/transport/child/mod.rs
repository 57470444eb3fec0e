//! Stdio transport of a client: a server as a child process, with newline-delimited messages on its standard input
//! and output.
//!
//! [`Command`] describes the process and is the transport. [`spawn`] spawns it, [`io_thread`] is the thread that reads
//! its output, [`stdin`] writes to it from any thread, and [`process_tree`] ends the process and everything it started.
//! Nothing here inspects messages.

mod arguments;
mod connection;
mod io_thread;
mod lineage;
#[cfg(target_os = "linux")]
mod proc_table;
#[cfg(target_os = "linux")]
mod process_finder;
#[cfg(not(target_os = "linux"))]
#[path = "no_process_finder.rs"]
mod process_finder;
mod process_tree;
mod spawn;
mod stderr;
mod stdin;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(not(target_os = "linux"))]
#[path = "no_supervisor.rs"]
mod supervisor;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::arguments::Arguments;
pub use self::lineage::Lineage;
#[cfg(target_os = "linux")]
pub use self::supervisor::{SUPERVISE, supervise};
use super::{OpenFuture, Transport, TransportHandle, Wire};

/// Time for a server to exit after its input has ended, and again after `SIGTERM`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type EnvironmentCallback = Arc<dyn Fn() -> io::Result<Vec<(String, String)>> + Send + Sync>;

/// A stdio server: a command that is started as a child process.
///
/// Every connection starts its own process. When the connection is closed or dropped, the process and everything it
/// started are ended.
#[derive(Clone)]
#[must_use]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    directory: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    env_clear: bool,
    env_with: Option<EnvironmentCallback>,
    lineage: Option<Lineage>,
    supervisor: Option<PathBuf>,
    on_stderr: Option<Hook>,
    on_stdout: Option<Hook>,
    close_timeout: Duration,
}

impl Command {
    /// Creates a command for a program, given by its name in `PATH` or by its path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Command {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            directory: None,
            env: Vec::new(),
            env_clear: false,
            env_with: None,
            lineage: None,
            supervisor: None,
            on_stderr: None,
            on_stdout: None,
            close_timeout: CLOSE_TIMEOUT,
        }
    }

    /// Adds one argument to the command line of the program. It is not interpreted by a shell.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments to the command line of the program.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the server process, in addition to those of this process.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Does not inherit the environment of this process; only [`Self::env`] and [`Self::env_with`] apply.
    pub fn env_clear(mut self) -> Self {
        self.env_clear = true;
        self
    }

    /// Sets a callback that returns environment variables at each start of the server, for secrets that must not be
    /// stored or that expire. It may block; its error fails the start.
    pub fn env_with(
        mut self,
        variables: impl Fn() -> io::Result<Vec<(String, String)>> + Send + Sync + 'static,
    ) -> Self {
        self.env_with = Some(Arc::new(variables));
        self
    }

    /// Adds a lineage marker to the environment of the process, so that [`Lineage::kill`] finds it and its
    /// descendants.
    pub fn lineage(mut self, lineage: &Lineage) -> Self {
        self.lineage = Some(lineage.clone());
        self
    }

    /// Starts the server through a supervisor process, which ensures that no process started by the server outlives
    /// the connection or this process, even if it detaches itself and clears its environment. A server of the same
    /// user can still kill the supervisor; processes that have detached themselves by then may be left. `program`
    /// must be a full path; it is started with `__supervise` as its first argument, and must then call
    /// `client::supervise`. On systems other than Linux this has no effect.
    pub fn supervisor(mut self, program: impl AsRef<Path>) -> Self {
        self.supervisor = Some(program.as_ref().to_owned());
        self
    }

    /// Sets the working directory of the server process.
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets a callback for each line of the server's standard error. It runs on the thread that reads messages and
    /// should return quickly. Very long lines are truncated.
    pub fn on_stderr(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stderr = Some(Hook::new(hook));
        self
    }

    /// Sets a callback for each line of the server's standard output, before it is parsed as a message, for
    /// diagnostics. Lines that exceed the message size are skipped.
    pub fn on_stdout(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stdout = Some(Hook::new(hook));
        self
    }

    /// Sets how long closing waits for the server to exit after its input has ended, and again after `SIGTERM`,
    /// before it is killed. Default: 2 s each.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }
}

impl Transport for Command {
    fn open(&self, wire: Wire) -> OpenFuture<'_> {
        Box::pin(async move {
            Ok(Box::new(connection::open(self.clone(), wire).await?) as Box<dyn TransportHandle>)
        })
    }

    /// Returns program, arguments and directory of the stdio server, for messages. The environment is omitted, since it
    /// may contain secrets.
    #[expect(
        clippy::unnecessary_debug_formatting,
        reason = "quoted, so that arguments with spaces are unambiguous"
    )]
    fn name(&self) -> String {
        let mut name = format!("{:?}", self.program);
        for arg in &self.args {
            let _ = write!(name, " {arg:?}");
        }
        if let Some(directory) = &self.directory {
            let _ = write!(name, " in {directory:?}");
        }
        name
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("current_dir", &self.directory)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

/// Callback that observes the output of a child: each line of standard output, before it is parsed as a message, or each
/// line of standard error. Its panics are caught.
#[derive(Clone)]
struct Hook(Arc<dyn Fn(&str) + Send + Sync>);

impl Hook {
    fn new(hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Hook(Arc::new(hook))
    }

    fn call(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        if catch_unwind(AssertUnwindSafe(|| (self.0)(&text))).is_err() {
            tracing::warn!("callback for output lines of a server panicked");
        }
    }
}
