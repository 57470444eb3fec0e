//! Open connection to a child: state shared by its owner, its senders and the I/O thread.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::Command;
use super::io_thread::Pump;
use super::process_tree::Tree;
use super::spawn::{Started, start};
use super::stdin::Input;
use crate::transport::{Line, Wire};

pub(super) struct Shared {
    pub(super) wire: Wire,
    pub(super) input: Input,
    pub(super) tree: Tree,
    closing: AtomicBool,
    dropped: AtomicBool,
    /// Wakes the I/O thread.
    bell: UnixStream,
}

impl Shared {
    /// Returns whether the child is to be closed gracefully.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Returns whether the connection was dropped.
    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Writes outgoing messages as far as possible without blocking.
    pub(super) fn send(&self) {
        if self.input.flush(&self.wire).is_blocked() {
            self.ring();
        }
    }

    fn ring(&self) {
        // A full buffer means that the thread is already being woken.
        let _ = (&self.bell).write(&[1]);
    }
}

/// Handle to a child process. Dropping it kills the child and everything it started.
pub(super) struct ChildLine {
    shared: Arc<Shared>,
    /// Its sender is dropped when the I/O thread has finished.
    done: watch::Receiver<()>,
}

impl Line for ChildLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.shared.closing.store(true, Ordering::Release);
            self.shared.ring();
            let mut done = self.done.clone();
            while done.changed().await.is_ok() {}
        })
    }
}

impl Drop for ChildLine {
    /// Kills the processes on this thread: the I/O thread may be busy with a hook, or be the one that drops.
    fn drop(&mut self) {
        self.shared.dropped.store(true, Ordering::Release);
        self.shared.tree.end();
        self.shared.ring();
    }
}

/// Starts the child on its I/O thread: starting blocks, and so may the environment callback.
pub(super) async fn open(command: Command, wire: Wire) -> io::Result<ChildLine> {
    let (opened, result) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    std::thread::Builder::new().name("linchpin-child".into()).spawn(move || {
        // Hooks and receivers may spawn tasks.
        let _in_runtime = runtime.as_ref().map(Handle::enter);
        match connect(&command, &wire) {
            Ok((line, pump, done)) => {
                // If the opening future was dropped, the handle is returned here, and dropping it ends the child.
                drop(opened.send(Ok(line)));
                pump.run();
                drop(done);
            }
            Err(error) => drop(opened.send(Err(error))),
        }
    })?;
    result.await.unwrap_or_else(|_| Err(io::Error::other("the thread that starts the server failed")))
}

fn connect(command: &Command, wire: &Wire) -> io::Result<(ChildLine, Pump, watch::Sender<()>)> {
    let (bell, ringing) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    ringing.set_nonblocking(true)?;
    let Started { mut child, stdin, mark, control } = start(command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let tree = Tree::new(child, &mark, control);
    let shared = Arc::new(Shared {
        wire: wire.clone(),
        input: Input::new(stdin),
        tree,
        closing: AtomicBool::new(false),
        dropped: AtomicBool::new(false),
        bell,
    });
    let (done, is_done) = watch::channel(());
    // From here on an early return ends the child.
    let line = ChildLine { shared: shared.clone(), done: is_done };
    shared.input.do_not_block()?;
    let pump = Pump::new(command, shared.clone(), stdout, stderr, ringing)?;
    // Weak, to avoid a cycle: the wire owns this callback, and the shared state owns the wire.
    let sender = Arc::downgrade(&shared);
    wire.on_outgoing(move || {
        if let Some(shared) = sender.upgrade() {
            shared.send();
        }
    });
    Ok((line, pump, done))
}
