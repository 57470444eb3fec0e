//! Line reader for standard input, for the prompts of an elicitation. A separate thread reads one line per request: the
//! read may block without limit, and must not prevent the process from exiting.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{Receiver, channel};

pub(super) struct LineReader {
    requests: SyncSender<()>,
    lines: Receiver<String>,
    /// A line was requested and has not been received yet.
    is_waiting: bool,
}

impl LineReader {
    pub(super) fn new() -> Self {
        let (requests, request_receiver) = sync_channel::<()>(1);
        let (sender, lines) = channel(1);
        std::thread::spawn(move || {
            for () in request_receiver {
                let mut line = String::new();
                // Nothing can be read after an error: the empty string signals the end of the input.
                let _ = io::stdin().read_line(&mut line);
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        LineReader { requests, lines, is_waiting: false }
    }

    /// Discards a line typed for an earlier elicitation that has already ended.
    pub(super) fn discard_stale(&mut self) {
        if self.is_waiting && self.lines.try_recv().is_ok() {
            self.is_waiting = false;
        }
    }

    /// Returns the next line that the user typed, trimmed; `None` at the end of the input.
    pub(super) async fn next(&mut self) -> Option<String> {
        if !self.is_waiting {
            self.requests.try_send(()).ok()?;
            self.is_waiting = true;
        }
        let line = self.lines.recv().await?;
        self.is_waiting = false;
        (!line.is_empty()).then(|| line.trim().to_owned())
    }
}
