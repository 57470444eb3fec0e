//! Spawning of a [`Command`], with a clear error if that fails.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

use super::lineage::{LINEAGE_VARIABLE, new_marker};
use super::supervisor::{self, Control, SUPERVISE};
use super::{Command, Lineage};

/// Started child process in its own group, and the marker that it and its descendants carry.
pub(super) struct SpawnedChild {
    pub(super) child: Child,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) marker: String,
    /// Control channel of the supervisor, if the child is one.
    pub(super) control: Option<Control>,
}

pub(super) fn spawn(command: &Command) -> io::Result<SpawnedChild> {
    let marker = new_marker();
    let mut process = match &command.supervisor {
        Some(supervisor) if cfg!(target_os = "linux") => {
            let mut process = std::process::Command::new(supervisor);
            process.arg0("linchpin").arg(SUPERVISE).arg(&command.program);
            process
        }
        _ => std::process::Command::new(&command.program),
    };
    process.args(&command.args);
    if command.env_clear {
        process.env_clear();
    }
    process.envs(command.env.iter().map(|(name, value)| (name, value)));
    process.envs(provided_environment(command)?);
    let lineage = lineage(command.lineage.as_ref(), &marker);
    if let Some(directory) = &command.directory {
        check_directory(command, directory)?;
        process.current_dir(directory);
    }
    process.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let failed = |error: io::Error| start_error(command, error.kind(), &start_error_reason(command, &error));
    if command.supervisor.is_some() && cfg!(target_os = "linux") {
        let started = supervisor::start(process, &lineage).map_err(|error| {
            start_error(command, error.kind(), &format!("the supervisor process cannot be started: {error}"))
        })?;
        let (child, stdin, control) = started.map_err(failed)?;
        return Ok(SpawnedChild { child, stdin: Some(stdin), marker, control: Some(control) });
    }
    let mut child = process.env(LINEAGE_VARIABLE, lineage).stdin(Stdio::piped()).spawn().map_err(failed)?;
    Ok(SpawnedChild { stdin: child.stdin.take(), child, marker, control: None })
}

/// Returns the value of the lineage variable of a child: the markers of this process, the given lineage and the new
/// marker. A server that starts servers thus belongs, with all of them, to the process that started it.
fn lineage(parent_lineage: Option<&Lineage>, marker: &str) -> OsString {
    let mut lineage = std::env::var_os(LINEAGE_VARIABLE).unwrap_or_default();
    for marker in parent_lineage.map(Lineage::as_str).into_iter().chain([marker]) {
        if !lineage.is_empty() {
            lineage.push(":");
        }
        lineage.push(marker);
    }
    lineage
}

fn provided_environment(command: &Command) -> io::Result<Vec<(String, String)>> {
    let Some(provide) = &command.env_with else { return Ok(Vec::new()) };
    let provided = catch_unwind(AssertUnwindSafe(|| provide()))
        .unwrap_or_else(|_| Err(io::Error::other("the function given to `env_with` panicked")));
    provided.map_err(|error| {
        start_error(
            command,
            error.kind(),
            &format!("the environment of the server could not be prepared: {error}"),
        )
    })
}

fn check_directory(command: &Command, directory: &Path) -> io::Result<()> {
    let path = directory.display();
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(start_error(
            command,
            ErrorKind::NotADirectory,
            &format!("the working directory {path} is not a directory; set another one with `current_dir`"),
        )),
        Err(error) => Err(start_error(
            command,
            error.kind(),
            &format!("the working directory {path} cannot be used ({error}); create it, or set another one"),
        )),
    }
}

fn start_error_reason(command: &Command, error: &io::Error) -> String {
    let is_path = command.program.as_encoded_bytes().contains(&b'/');
    let directory = command.directory.as_deref().unwrap_or(Path::new(""));
    match error.kind() {
        ErrorKind::NotFound if !is_path => {
            "no such program in PATH; install it, or give its full path".to_owned()
        }
        ErrorKind::NotFound if directory.join(&command.program).exists() => {
            "the interpreter or dynamic loader of the program is missing; install it".to_owned()
        }
        ErrorKind::NotFound => "there is no such file; check the path".to_owned(),
        ErrorKind::PermissionDenied => {
            "the program is not executable; make it so with `chmod +x`, or start it through its interpreter"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

fn start_error(command: &Command, kind: ErrorKind, reason: &str) -> io::Error {
    io::Error::new(kind, format!("cannot start `{}`: {reason}", command.program.display()))
}
