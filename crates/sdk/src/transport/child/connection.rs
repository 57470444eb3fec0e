//! Open connection to a child: state shared by its owner, its senders and the I/O thread.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::Command;
use super::io_thread::IoThread;
use super::process_tree::ProcessTree;
use super::spawn::{SpawnedChild, spawn};
use super::stdin::StdinWriter;
use crate::transport::{TransportHandle, Wire};

pub(super) struct ChildState {
    pub(super) wire: Wire,
    pub(super) input: StdinWriter,
    pub(super) tree: ProcessTree,
    is_closing: AtomicBool,
    is_dropped: AtomicBool,
    /// Socket that wakes the I/O thread of the child.
    wake: UnixStream,
}

impl ChildState {
    /// Returns whether the child process is to be closed gracefully.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Returns whether the client has dropped the connection to the child.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Writes outgoing messages to the child as far as possible without blocking.
    pub(super) fn send(&self) {
        if self.input.flush(&self.wire).is_blocked() {
            self.wake();
        }
    }

    fn wake(&self) {
        // A full buffer means that the thread is already being woken.
        let _ = (&self.wake).write(&[1]);
    }
}

/// Handle of a stdio connection. Closing it ends the child gracefully; dropping it kills the child and everything it
/// started.
pub(super) struct ChildHandle {
    shared: Arc<ChildState>,
    /// Channel that closes when the I/O thread has finished.
    io_thread_finished: watch::Receiver<()>,
}

impl TransportHandle for ChildHandle {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.shared.is_closing.store(true, Ordering::Release);
            self.shared.wake();
            let mut done = self.io_thread_finished.clone();
            while done.changed().await.is_ok() {}
        })
    }
}

impl Drop for ChildHandle {
    /// Kills the processes on this thread: the I/O thread may be busy with a hook, or be the one that drops.
    fn drop(&mut self) {
        self.shared.is_dropped.store(true, Ordering::Release);
        self.shared.tree.kill();
        self.shared.wake();
    }
}

/// Starts the child process on its I/O thread: starting blocks, and so may the environment callback.
pub(super) async fn open(command: Command, wire: Wire) -> io::Result<ChildHandle> {
    let (result_sender, result) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    std::thread::Builder::new().name("linchpin-child".into()).spawn(move || {
        // Hooks and receivers may spawn tasks.
        let _in_runtime = runtime.as_ref().map(Handle::enter);
        match connect(&command, &wire) {
            Ok((line, io_thread, done)) => {
                // If the opening future was dropped, the handle is returned here, and dropping it ends the child.
                drop(result_sender.send(Ok(line)));
                io_thread.run();
                drop(done);
            }
            Err(error) => drop(result_sender.send(Err(error))),
        }
    })?;
    result.await.unwrap_or_else(|_| Err(io::Error::other("the thread that starts the server failed")))
}

fn connect(command: &Command, wire: &Wire) -> io::Result<(ChildHandle, IoThread, watch::Sender<()>)> {
    let (wake_sender, wake_receiver) = UnixStream::pair()?;
    wake_sender.set_nonblocking(true)?;
    wake_receiver.set_nonblocking(true)?;
    let SpawnedChild { mut child, stdin, marker, control } = spawn(command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let tree = ProcessTree::new(child, &marker, control);
    let shared = Arc::new(ChildState {
        wire: wire.clone(),
        input: StdinWriter::new(stdin),
        tree,
        is_closing: AtomicBool::new(false),
        is_dropped: AtomicBool::new(false),
        wake: wake_sender,
    });
    let (done, is_done) = watch::channel(());
    // From here on an early return ends the child.
    let line = ChildHandle { shared: shared.clone(), io_thread_finished: is_done };
    shared.input.set_nonblocking()?;
    let io_thread = IoThread::new(command, shared.clone(), stdout, stderr, wake_receiver)?;
    // Weak, to avoid a cycle: the wire owns this callback, and the shared state owns the wire.
    let sender = Arc::downgrade(&shared);
    wire.on_outgoing(move || {
        if let Some(shared) = sender.upgrade() {
            shared.send();
        }
    });
    Ok((line, io_thread, done))
}
