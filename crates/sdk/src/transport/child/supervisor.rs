//! Supervisor of one server process: a small process between this one and the server that becomes the parent of
//! every orphan below it, so that no descendant of the server can escape while it runs. If a server kills its
//! supervisor, it is ended like one without a supervisor: by process group, descent and lineage. The supervisor ends
//! all descendants when the server has exited, and when the other end of its control socket is closed, which also
//! happens when the process that started it is killed. Messages do not pass through it: the server has the pipes.
//!
//! Control socket, which is the supervisor's standard input:
//!
//! | direction | content |
//! |---|---|
//! | to the supervisor | lineage of the server, with the read end of its standard input |
//! | from the supervisor | error number of the start, 0 if the server runs |
//! | to the supervisor | any byte: send `SIGTERM` to all descendants |
//! | to the supervisor | end of stream: kill all descendants |
//! | from the supervisor | wait status of the server, after the last descendant is gone |

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, PipeReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, wait};

use super::lineage::LINEAGE_VARIABLE;
use super::process_finder::{ProcessFinder, terminate};
use super::process_tree::{KILL_TIMEOUT, kill_all};

/// Argument with which a program becomes a supervisor. It must call [`supervise`] and do nothing else.
pub const SUPERVISE: &str = "__supervise";
/// Time for processes that have outlived their server to exit after `SIGTERM`.
const TERM_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay between two attempts to kill processes that could not be killed.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_LINEAGE_LEN: usize = 4096;

/// Connection to the running supervisor process of a stdio server.
pub(super) struct Control(UnixStream);

impl Control {
    /// Sends `SIGTERM` to the server and all its descendants.
    pub(super) fn terminate(&self) {
        let _ = (&self.0).write(&[1]); // a supervisor that has ended has no process left to signal
    }

    /// Makes the supervisor kill all processes, and returns the exit status of the server; `None` if the supervisor was
    /// killed or does not respond in time.
    pub(super) fn kill_all(&self, timeout: Duration) -> Option<ExitStatus> {
        let _ = self.0.shutdown(Shutdown::Write); // it may have ended
        self.0.set_read_timeout(Some(timeout)).ok()?;
        read_number(&self.0).ok().map(ExitStatus::from_raw)
    }
}

/// Starts a supervisor and, through it, the server whose program and arguments are in `command` after [`SUPERVISE`].
/// The inner error is the reason why the server could not be started.
pub(super) fn start(
    mut command: Command,
    lineage: &OsStr,
) -> io::Result<io::Result<(Child, ChildStdin, Control)>> {
    let (control, supervisor_end) = UnixStream::pair()?;
    let (input, stdin) = io::pipe()?;
    // The supervisor does not carry the lineage: ending the lineage must not kill the supervisor first.
    command.env_remove(LINEAGE_VARIABLE).stdin(OwnedFd::from(supervisor_end)).process_group(0);
    let mut child = command.spawn()?;
    drop(command); // it holds the other end of the control socket
    let sent = send(&control, lineage, &input);
    drop(input);
    let started = sent.and_then(|()| read_number(&control));
    if let Ok(0) = started {
        let stdin = ChildStdin::from(OwnedFd::from(stdin));
        return Ok(Ok((child, stdin, Control(control))));
    }
    let _ = child.kill(); // it may have ended
    let _ = child.wait();
    started.map(|code| Err(io::Error::from_raw_os_error(code)))
}

fn send(control: &UnixStream, lineage: &OsStr, input: &PipeReader) -> io::Result<()> {
    let descriptors = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(control, &[IoSlice::new(lineage.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(control: &UnixStream) -> io::Result<(OsString, OwnedFd)> {
    let mut lineage = vec![0; MAX_LINEAGE_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut lineage)];
    let count = recvmsg(control, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    lineage.truncate(count);
    let mut input = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            input = descriptors.next();
        }
    }
    Ok((OsString::from_vec(lineage), input.ok_or(ErrorKind::UnexpectedEof)?))
}

fn read_number(mut control: &UnixStream) -> io::Result<i32> {
    let mut number = [0; 4];
    control.read_exact(&mut number)?;
    Ok(i32::from_ne_bytes(number))
}

/// Runs as a supervisor: starts the server named by `arguments` (program and arguments, after [`SUPERVISE`]), and
/// returns when the server and all its descendants have exited. A program set with
/// [`Command::supervisor`](super::Command::supervisor) must call this before anything else.
pub fn supervise(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // the process that started it notices the exit
    }
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let mut control = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let (lineage, input) = receive(&control)?;
    let mut command = Command::new(arguments.next().ok_or(ErrorKind::InvalidInput)?);
    command.args(arguments).env(LINEAGE_VARIABLE, lineage).stdin(input).process_group(0);
    command.stdout(rustix::stdio::stdout().try_clone_to_owned()?);
    command.stderr(rustix::stdio::stderr().try_clone_to_owned()?);
    // The server's output ends when its last writer has exited, so this process must not hold it.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let commands = control.try_clone()?;
    std::thread::Builder::new().name("linchpin-orders".into()).spawn(move || handle_orders(&commands))?;
    // Everything that can fail comes before this: from here on the server must be supervised.
    let started = command.spawn();
    drop(command); // it has the server's pipes
    let code = started
        .as_ref()
        .map_or_else(|error| error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()), |_| 0);
    let _ = control.write_all(&code.to_ne_bytes()); // if the other end is closed, `obey` ends the server
    let Ok(server) = started else { return Ok(()) };
    let status = reap(Pid::from_child(&server));
    control.write_all(&status.to_ne_bytes())
}

/// Handles orders on the control socket until it is closed, then kills everything.
fn handle_orders(mut control: &UnixStream) {
    while control.read_exact(&mut [0]).is_ok() {
        terminate_all();
    }
    kill_descendants();
}

/// Waits for the exit of the server and of all orphaned descendants. Returns the wait status of the server when no
/// descendant is left.
fn reap(server: Pid) -> i32 {
    let mut status = 0;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, exit_status))) if process == server => {
                status = exit_status.as_raw();
                let thread = std::thread::Builder::new().name("linchpin-ending".into());
                if thread.spawn(end_descendants).is_err() {
                    kill_all(&mut ProcessFinder::descendants(), Instant::now() + KILL_TIMEOUT, 0, |_| ());
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return status,
        }
    }
}

/// Terminates and then kills the processes that have outlived the server.
fn end_descendants() {
    terminate_all();
    std::thread::sleep(TERM_TIMEOUT);
    kill_descendants();
}

fn terminate_all() {
    ProcessFinder::descendants().scan().alive.iter().for_each(terminate);
}

/// Kills all descendants repeatedly: this process exits when the last of them was reaped.
fn kill_descendants() -> ! {
    loop {
        kill_all(&mut ProcessFinder::descendants(), Instant::now() + KILL_TIMEOUT, 0, |_| ());
        std::thread::sleep(RETRY_DELAY);
    }
}
