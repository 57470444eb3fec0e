//! Line reader for standard input. A separate thread reads one line per request: the read may block without limit,
//! and must not prevent the process from exiting.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{Receiver, channel};

pub(super) struct Lines {
    wanted: SyncSender<()>,
    typed: Receiver<String>,
    /// A line was requested and has not been received yet.
    is_waiting: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        let (wanted, wishes) = sync_channel::<()>(1);
        let (sender, typed) = channel(1);
        std::thread::spawn(move || {
            for () in wishes {
                let mut line = String::new();
                // Nothing can be read after an error: the empty string signals the end of the input.
                let _ = io::stdin().read_line(&mut line);
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Lines { wanted, typed, is_waiting: false }
    }

    /// Discards a line typed for an earlier elicitation that has already ended.
    pub(super) fn forget(&mut self) {
        if self.is_waiting && self.typed.try_recv().is_ok() {
            self.is_waiting = false;
        }
    }

    /// Returns the next line, trimmed; `None` at the end of the input.
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
