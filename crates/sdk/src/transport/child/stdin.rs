//! Writer to the standard input of a child. Senders write directly and never block; bytes that do not fit are
//! written by the I/O thread once there is room.

use std::io::{self, ErrorKind, Write};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::lock::lock;
use crate::transport::Wire;

/// Size above which the buffer of unwritten messages is freed after a write, rather than reused.
const MAX_RETAINED_BYTES: usize = 1 << 20;

pub(super) struct StdinWriter {
    pipe: Mutex<Pipe>,
    /// Whether bytes wait to be written because the pipe to the child was full. While it is set, the I/O thread writes
    /// all new messages, so the holder of the lock need not check for them.
    is_blocked: AtomicBool,
}

struct Pipe {
    /// Standard input of the child; `None` once it is closed or the child no longer reads. Shared only while the I/O
    /// thread waits for room.
    stdin: Option<Arc<ChildStdin>>,
    bytes: Vec<u8>,
    written: usize,
}

/// Result of a write to the standard input of a child: complete, or blocked by a full pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteProgress {
    /// Nothing is left for the caller to do: all messages are written, or another thread writes the rest.
    Complete,
    /// The pipe to the child is full. Returned only to the caller that noticed it.
    Blocked,
}

impl WriteProgress {
    pub(super) fn is_blocked(self) -> bool {
        self == WriteProgress::Blocked
    }
}

impl StdinWriter {
    pub(super) fn new(stdin: Option<ChildStdin>) -> Self {
        let pipe = Pipe { stdin: stdin.map(Arc::new), bytes: Vec::new(), written: 0 };
        StdinWriter { pipe: Mutex::new(pipe), is_blocked: AtomicBool::new(false) }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        if let Some(stdin) = &lock(&self.pipe).stdin {
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(())
    }

    /// Writes outgoing messages to the child's standard input, in order. The holder of the lock also writes messages
    /// that are added concurrently, so that no sender waits for it.
    pub(super) fn flush(&self, wire: &Wire) -> WriteProgress {
        while wire.has_outgoing() {
            let mut pipe = match self.pipe.try_lock() {
                Ok(pipe) => pipe,
                Err(TryLockError::Poisoned(pipe)) => pipe.into_inner(),
                Err(TryLockError::WouldBlock) => return WriteProgress::Complete,
            };
            if self.is_blocked.load(Ordering::Acquire) {
                return WriteProgress::Complete; // the I/O thread continues when there is room
            }
            wire.take_outgoing(&mut pipe.bytes);
            if self.write(&mut pipe).is_blocked() {
                return WriteProgress::Blocked;
            }
        }
        WriteProgress::Complete
    }

    /// Returns the pipe to the child's standard input, if bytes wait for room in it.
    pub(super) fn blocked_pipe(&self) -> Option<Arc<ChildStdin>> {
        if !self.is_blocked.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.pipe).stdin.clone()
    }

    /// Continues writing queued messages when the pipe may have room again.
    pub(super) fn resume(&self, wire: &Wire) {
        if !self.write(&mut lock(&self.pipe)).is_blocked() {
            self.flush(wire);
        }
    }

    /// Closes the pipe if everything has been written. Returns whether it is closed.
    pub(super) fn close_when_written(&self, wire: &Wire) -> bool {
        let mut pipe = lock(&self.pipe);
        if self.write(&mut pipe).is_blocked() {
            return false;
        }
        wire.take_outgoing(&mut pipe.bytes);
        if self.write(&mut pipe).is_blocked() {
            return false;
        }
        pipe.stdin = None;
        true
    }

    /// Closes the standard input of the child. Later messages are dropped.
    pub(super) fn close(&self) {
        let mut pipe = lock(&self.pipe);
        pipe.stdin = None;
        self.write(&mut pipe);
    }

    fn write(&self, pipe: &mut Pipe) -> WriteProgress {
        let progress = pipe.write();
        self.is_blocked.store(progress.is_blocked(), Ordering::Release);
        progress
    }
}

impl Pipe {
    fn write(&mut self) -> WriteProgress {
        while self.written < self.bytes.len() {
            // Without a pipe the rest is dropped: the child is about to exit, which provides the reason.
            let Some(stdin) = &self.stdin else { break };
            match stdin.as_ref().write(&self.bytes[self.written..]) {
                Ok(count) if count > 0 => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return WriteProgress::Blocked,
                _ => self.stdin = None,
            }
        }
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > MAX_RETAINED_BYTES {
            self.bytes = Vec::new();
        }
        WriteProgress::Complete
    }
}
