//! The open connection to a child: what its owner, its senders and its thread share.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::Command;
use super::input::Input;
use super::pump::Pump;
use super::start::{Started, start};
use super::tree::Tree;
use crate::transport::{Line, Wire};

pub(super) struct Shared {
    pub(super) wire: Wire,
    pub(super) input: Input,
    pub(super) tree: Tree,
    closing: AtomicBool,
    dropped: AtomicBool,
    /// Wakes the thread from its waiting.
    bell: UnixStream,
}

impl Shared {
    /// The child is to be ended in good order.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Nobody wants to hear of the child any more.
    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Writes what waits to be sent, as far as that is possible without waiting.
    pub(super) fn send(&self) {
        if self.input.flush(&self.wire).is_blocked() {
            self.ring();
        }
    }

    fn ring(&self) {
        // A bell that is full has been rung.
        let _ = (&self.bell).write(&[1]);
    }
}

/// A child process that can be talked to. Dropping it kills the child, with everything that the child
/// started.
pub(super) struct ChildLine {
    shared: Arc<Shared>,
    /// Its sender is gone when the thread is done.
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
    /// Does the work itself: the thread may be busy with a hook, or be the one that drops.
    fn drop(&mut self) {
        self.shared.dropped.store(true, Ordering::Release);
        self.shared.tree.end();
        self.shared.ring();
    }
}

/// Starts the child on the thread that will read from it: starting blocks, and so may what provides the
/// environment.
pub(super) async fn open(command: Command, wire: Wire) -> io::Result<ChildLine> {
    let (opened, result) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    std::thread::Builder::new().name("linchpin-child".into()).spawn(move || {
        // Hooks and receivers may start tasks.
        let _in_runtime = runtime.as_ref().map(Handle::enter);
        match connect(&command, &wire) {
            Ok((line, pump, done)) => {
                // If nobody waits for it any more the line comes back, and ends the child as it is dropped.
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
    // Weak: the wire keeps this function, and what is shared keeps the wire.
    let sender = Arc::downgrade(&shared);
    wire.on_outgoing(move || {
        if let Some(shared) = sender.upgrade() {
            shared.send();
        }
    });
    Ok((line, pump, done))
}
