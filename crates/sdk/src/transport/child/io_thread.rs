//! I/O thread of one child: reads its output, continues blocked writes, notices its exit, and closes it gracefully.
//!
//! No lock is held while a receiver or a hook runs, so that these may send on, close and drop the connection.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linchpin_jsonrpc::{FramedLine, LineBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::ChildState;
use super::stderr::StderrTail;
use super::{Command, Hook};

/// Number of reads of one output stream before the others get their turn.
const MAX_READS_PER_TURN: usize = 16;
/// Poll interval for the child's exit on systems without an exit descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) struct IoThread {
    shared: Arc<ChildState>,
    /// Standard output of the child; `None` at its end.
    stdout: Option<ChildStdout>,
    /// Standard error of the child; `None` at its end.
    stderr: Option<ChildStderr>,
    wake: UnixStream,
    lines: LineBuffer,
    stderr_tail: StderrTail,
    on_stdout: Option<Hook>,
    close_timeout: Duration,
    phase: ClosePhase,
    has_exited: bool,
    was_closed: bool,
    was_terminated: bool,
}

/// Phase of a stdio connection that is being closed, with its deadline; `None` means no deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosePhase {
    Open,
    /// The last messages are being written to the child.
    Flushing(Option<Instant>),
    /// The standard input of the child is closed, so that a well-behaved child exits.
    InputClosed(Option<Instant>),
    /// `SIGTERM` was sent to the child.
    Terminating(Option<Instant>),
    Closed,
}

impl IoThread {
    pub(super) fn new(
        command: &Command,
        shared: Arc<ChildState>,
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        wakeup: UnixStream,
    ) -> io::Result<Self> {
        for descriptor in [stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)] {
            descriptor.map_or(Ok(()), |descriptor| rustix::io::ioctl_fionbio(descriptor, true))?;
        }
        Ok(IoThread {
            lines: LineBuffer::new(shared.wire.max_message()),
            stderr_tail: StderrTail::new(command.on_stderr.clone()),
            on_stdout: command.on_stdout.clone(),
            close_timeout: command.close_timeout,
            shared,
            stdout,
            stderr,
            wake: wakeup,
            phase: ClosePhase::Open,
            has_exited: false,
            was_closed: false,
            was_terminated: false,
        })
    }

    /// Runs the I/O loop of a child process until the child has exited and the end of the connection was reported.
    pub(super) fn run(mut self) {
        // Whatever a receiver does, the child is ended and waited for.
        let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let status = self.shared.tree.kill();
        self.shared.input.close();
        let finished = served.and_then(|()| catch_unwind(AssertUnwindSafe(|| self.finish())));
        let reason = match finished {
            Ok(()) => self.end_reason(status),
            Err(_) => "the connection failed: the receiver of its messages panicked".to_owned(),
        };
        self.shared.wire.report_closed(&reason);
    }

    fn serve(&mut self) {
        while self.advance() != ClosePhase::Closed {
            let [stdout, stderr, wakeup, exit, stdin_writable] = self.wait();
            if wakeup {
                // A short read drains it; remaining bytes wake the thread again.
                let _ = self.wake.read(&mut [0; 64]);
            }
            if stdin_writable {
                self.shared.input.resume(&self.shared.wire);
            }
            if stderr {
                self.read_stderr(MAX_READS_PER_TURN);
            }
            self.has_exited |= exit;
            if stdout || exit {
                self.read_stdout(MAX_READS_PER_TURN);
            }
        }
    }

    /// Advances the closing of the child through all phases that are due.
    fn advance(&mut self) -> ClosePhase {
        loop {
            let next = self.next_phase();
            if next == self.phase {
                return next;
            }
            match next {
                ClosePhase::Flushing(_) => {
                    self.was_closed = true;
                    self.shared.tree.record_descendants();
                }
                ClosePhase::InputClosed(_) => self.shared.input.close(),
                ClosePhase::Terminating(_) => {
                    // A child that has exited by itself may have left descendants, which may exit gracefully.
                    self.was_terminated |= !self.has_exited;
                    self.shared.tree.terminate();
                }
                ClosePhase::Open | ClosePhase::Closed => {}
            }
            self.phase = next;
        }
    }

    fn next_phase(&self) -> ClosePhase {
        let now = Instant::now();
        let is_past = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let until = now.checked_add(self.close_timeout);
        let is_silent = self.stdout.is_none();
        match self.phase {
            _ if self.shared.is_dropped() => ClosePhase::Closed,
            ClosePhase::Open if self.has_exited => ClosePhase::Closed,
            ClosePhase::Open if is_silent => ClosePhase::InputClosed(until),
            ClosePhase::Open if self.shared.is_closing() => ClosePhase::Flushing(until),
            ClosePhase::Flushing(end) => {
                let is_finished = self.has_exited || is_silent || is_past(end);
                let is_written = is_finished || self.shared.input.close_when_written(&self.shared.wire);
                if is_written { ClosePhase::InputClosed(until) } else { self.phase }
            }
            ClosePhase::InputClosed(_) | ClosePhase::Terminating(_) if self.has_exited && is_silent => {
                ClosePhase::Closed
            }
            ClosePhase::InputClosed(end) if self.has_exited || is_past(end) => ClosePhase::Terminating(until),
            ClosePhase::Terminating(end) if is_past(end) => ClosePhase::Closed,
            same => same,
        }
    }

    /// Waits for an event of the child: output, error output, wake-up, exit, room in its input.
    fn wait(&self) -> [bool; 5] {
        let blocked = self.shared.input.blocked_pipe();
        let exit_fd = self.shared.tree.exit_fd().filter(|_| !self.has_exited);
        let mut watched = [
            self.poll_fd(self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            self.poll_fd(self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
            self.poll_fd(Some(self.wake.as_fd()), PollFlags::IN),
            self.poll_fd(exit_fd, PollFlags::IN),
            self.poll_fd(blocked.as_deref().map(AsFd::as_fd), PollFlags::OUT),
        ];
        let timeout = self.timeout().and_then(|left| Timespec::try_from(left).ok());
        // On an interrupt nothing is ready, and `poll` is called again.
        let failed = poll(&mut watched, timeout.as_ref()).is_err();
        let [stdout, stderr, wakeup, exit, stdin_writable] =
            watched.map(|one| !failed && !one.revents().is_empty());
        let exit = exit || (self.must_poll_exit() && self.shared.tree.has_exited());
        [stdout, stderr, wakeup, exit, stdin_writable]
    }

    /// Returns the `poll(2)` entry of a file descriptor. An absent one is replaced by the wake-up socket without
    /// events.
    fn poll_fd<'a>(&'a self, descriptor: Option<BorrowedFd<'a>>, flags: PollFlags) -> PollFd<'a> {
        match descriptor {
            Some(descriptor) => PollFd::from_borrowed_fd(descriptor, flags),
            None => PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::empty()),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = match self.phase {
            ClosePhase::Flushing(until) | ClosePhase::InputClosed(until) | ClosePhase::Terminating(until) => {
                until
            }
            ClosePhase::Open | ClosePhase::Closed => None,
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.must_poll_exit() {
            Some(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)))
        } else {
            left
        }
    }

    /// Returns whether the exit of the child is expected and has to be polled for, because no file descriptor reports
    /// it.
    fn must_poll_exit(&self) -> bool {
        self.phase != ClosePhase::Open && !self.has_exited && self.shared.tree.exit_fd().is_none()
    }

    fn read_stdout(&mut self, max_reads: usize) {
        for _ in 0..max_reads {
            let Some(stdout) = &mut self.stdout else { return };
            let space = self.lines.space();
            let capacity = space.len();
            let Some(count) = read(stdout, space) else { return };
            self.lines.advance(count);
            while let Some(line) = self.lines.next_line() {
                if self.shared.is_dropped() {
                    return;
                }
                match line {
                    FramedLine::Complete(line) => receive(&self.shared, self.on_stdout.as_ref(), line),
                    FramedLine::TooLong => self.shared.wire.too_long(),
                }
            }
            if count == 0 {
                self.stdout = None;
            }
            // After the exit of the child, read on until the output has ended, too.
            if count < capacity && !self.has_exited {
                return;
            }
        }
    }

    fn read_stderr(&mut self, max_reads: usize) {
        let mut space = [0; 4096];
        for _ in 0..max_reads {
            let Some(stderr) = &mut self.stderr else { return };
            let Some(count) = read(stderr, &mut space) else { return };
            if count == 0 {
                self.stderr = None;
            }
            self.stderr_tail.push(&space[..count]);
            if self.shared.is_dropped() || (count < space.len() && !self.has_exited) {
                return;
            }
        }
    }

    /// Reads the remaining output of the child. No process writes any more, so this is at most the content of the
    /// pipes, unless a process could not be killed.
    fn finish(&mut self) {
        self.has_exited = true;
        if self.shared.is_dropped() {
            return;
        }
        let max_reads = self.shared.wire.max_message().max(1 << 20) / 2048;
        self.read_stderr(max_reads);
        self.stderr_tail.finish();
        self.read_stdout(max_reads);
        if let Some(line) = self.lines.last_line().filter(|_| !self.shared.is_dropped()) {
            receive(&self.shared, self.on_stdout.as_ref(), line);
        }
    }

    fn end_reason(&self, status: Option<ExitStatus>) -> String {
        if self.shared.is_dropped() {
            return "the client dropped the connection".to_owned();
        }
        if self.was_closed {
            return "the client closed the connection".to_owned();
        }
        let end = match status {
            _ if self.was_terminated => {
                "the server closed its standard output without exiting, and was terminated".to_owned()
            }
            Some(status) => match status.code() {
                Some(code) => format!("the server exited with status {code}"),
                // Like `signal: 9 (SIGKILL)`.
                None => format!("the server was terminated by {}", status.to_string().replacen(':', "", 1)),
            },
            None => "the server has exited".to_owned(),
        };
        match self.stderr_tail.tail() {
            Some(tail) => format!("{end}; last error output: {tail}"),
            None => end,
        }
    }
}

fn receive(shared: &ChildState, hook: Option<&Hook>, line: &[u8]) {
    if let Some(hook) = hook {
        hook.call(line);
    }
    shared.wire.receive(line);
}

/// Reads from a non-blocking stream: the number of bytes, 0 at its end, `None` if nothing is available. A failed stream
/// counts as ended.
fn read(stream: &mut impl Read, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            result => return Some(result.unwrap_or(0)),
        }
    }
}
