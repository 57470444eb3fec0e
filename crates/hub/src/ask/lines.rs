//! Lines that the user types. A thread of its own reads them, only when one is wanted: it may wait for ever,
//! and the program must be able to end meanwhile.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{Receiver, channel};

pub(super) struct Lines {
    wanted: SyncSender<()>,
    typed: Receiver<String>,
    /// A line was wanted and has not come.
    is_waiting: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        let (wanted, wishes) = sync_channel::<()>(1);
        let (sender, typed) = channel(1);
        std::thread::spawn(move || {
            for () in wishes {
                let mut line = String::new();
                // No more can be read after an error; an empty line without its end says so.
                let _ = io::stdin().read_line(&mut line);
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Lines { wanted, typed, is_waiting: false }
    }

    /// Forgets a line that was typed for a question that is over.
    pub(super) fn forget(&mut self) {
        if self.is_waiting && self.typed.try_recv().is_ok() {
            self.is_waiting = false;
        }
    }

    /// The next line without the space around it; `None` at the end of the input.
    pub(super) async fn next(&mut self) -> Option<String> {
        if !self.is_waiting {
            self.wanted.try_send(()).ok()?;
            self.is_waiting = true;
        }
        let line = self.typed.recv().await?;
        self.is_waiting = false;
        (!line.is_empty()).then(|| line.trim().to_owned())
    }
}
