//! The standard input of a child. Whoever has something to send writes it there and then, without ever
//! waiting; what finds no room is written by the child's thread once there is some.

use std::io::{self, ErrorKind, Write};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::sync::lock;
use crate::transport::Wire;

/// A buffer that grew beyond this for one large message is given back.
const KEEP: usize = 1 << 20;

pub(super) struct Input {
    pipe: Mutex<Pipe>,
    /// Whether bytes were left because there was no room. Whoever holds the pipe meanwhile need not look for
    /// new messages when giving it back: the thread does, once there is room.
    blocked: AtomicBool,
}

struct Pipe {
    /// `None` once it is closed or nobody reads it. Shared only while the thread waits for room.
    stdin: Option<Arc<ChildStdin>>,
    bytes: Vec<u8>,
    written: usize,
}

/// How far writing came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Nothing is left for the caller to do.
    All,
    /// There was no room. Said only to the one who found out.
    Blocked,
}

impl Written {
    pub(super) fn is_blocked(self) -> bool {
        self == Written::Blocked
    }
}

impl Input {
    pub(super) fn new(stdin: Option<ChildStdin>) -> Self {
        let pipe = Pipe { stdin: stdin.map(Arc::new), bytes: Vec::new(), written: 0 };
        Input { pipe: Mutex::new(pipe), blocked: AtomicBool::new(false) }
    }

    pub(super) fn do_not_block(&self) -> io::Result<()> {
        if let Some(stdin) = &lock(&self.pipe).stdin {
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(())
    }

    /// Writes what waits to be sent, in order. Whoever holds the pipe also writes what others add meanwhile,
    /// so nobody waits for it.
    pub(super) fn flush(&self, wire: &Wire) -> Written {
        while wire.has_outgoing() {
            let mut pipe = match self.pipe.try_lock() {
                Ok(pipe) => pipe,
                Err(TryLockError::Poisoned(pipe)) => pipe.into_inner(),
                Err(TryLockError::WouldBlock) => return Written::All,
            };
            if self.blocked.load(Ordering::Acquire) {
                return Written::All; // the thread knows, and goes on when there is room
            }
            wire.take(&mut pipe.bytes);
            if self.write(&mut pipe).is_blocked() {
                return Written::Blocked;
            }
        }
        Written::All
    }

    /// The pipe, if there is something to write as soon as it has room.
    pub(super) fn blocked(&self) -> Option<Arc<ChildStdin>> {
        if !self.blocked.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.pipe).stdin.clone()
    }

    /// There may be room again.
    pub(super) fn resume(&self, wire: &Wire) {
        if !self.write(&mut lock(&self.pipe)).is_blocked() {
            self.flush(wire);
        }
    }

    /// Closes the pipe if everything has been written; says whether it is closed.
    pub(super) fn close_when_written(&self, wire: &Wire) -> bool {
        let mut pipe = lock(&self.pipe);
        if self.write(&mut pipe).is_blocked() {
            return false;
        }
        wire.take(&mut pipe.bytes);
        if self.write(&mut pipe).is_blocked() {
            return false;
        }
        pipe.stdin = None;
        true
    }

    /// Closes the pipe. From now on messages are dropped.
    pub(super) fn close(&self) {
        let mut pipe = lock(&self.pipe);
        pipe.stdin = None;
        self.write(&mut pipe);
    }

    fn write(&self, pipe: &mut Pipe) -> Written {
        let written = pipe.write();
        self.blocked.store(written.is_blocked(), Ordering::Release);
        written
    }
}

impl Pipe {
    fn write(&mut self) -> Written {
        while self.written < self.bytes.len() {
            // Without a pipe the rest is dropped: the child is about to end, and its end says why.
            let Some(stdin) = &self.stdin else { break };
            match stdin.as_ref().write(&self.bytes[self.written..]) {
                Ok(count) if count > 0 => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Blocked,
                _ => self.stdin = None,
            }
        }
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        Written::All
    }
}
