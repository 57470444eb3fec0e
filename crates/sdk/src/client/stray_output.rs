//! Stray output: lines on the standard output of a server that are not protocol messages. If a server writes many lines
//! and no message, the connection fails before its timeout. A few lines before the first message are tolerated, since
//! some servers print a banner and start slowly. If no message follows before the timeout, the error quotes these
//! lines.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::lock::lock;

/// Number of stray lines without a message after which the connection fails.
const MAX_STRAY_LINES: usize = 100;
/// Maximum number of stray output lines that an error quotes.
const QUOTED_LINES: usize = 3;
/// Maximum number of characters that an error quotes of each stray output line.
const QUOTED_CHARS: usize = 200;

/// Lines on the standard output of a server that are not messages, before its first message.
#[derive(Default)]
pub(crate) struct StrayOutput {
    state: Mutex<StrayState>,
    changed: Notify,
}

#[derive(Default)]
struct StrayState {
    count: usize,
    lines: Vec<String>,
    has_message: bool,
}

impl StrayOutput {
    /// Records a line of standard output that is not a JSON-RPC message, to quote it if the connection fails. Returns
    /// whether it is one of the first, which are logged.
    pub(crate) fn record_line(&self, line: &[u8]) -> bool {
        let mut state = lock(&self.state);
        if state.has_message {
            return true;
        }
        state.count += 1;
        let is_shown = state.lines.len() < QUOTED_LINES;
        if is_shown {
            let line = String::from_utf8_lossy(line);
            state.lines.push(line.trim().chars().take(QUOTED_CHARS).collect());
        }
        self.changed.notify_one();
        is_shown
    }

    /// Records that the server has sent a valid message, after which stray lines are not collected.
    pub(crate) fn record_message(&self) {
        let mut state = lock(&self.state);
        if !state.has_message {
            *state = StrayState { has_message: true, ..StrayState::default() };
        }
    }

    /// Returns the first lines that the server wrote instead of messages, if no message was received.
    pub(crate) fn lines(&self) -> Option<Vec<String>> {
        let state = lock(&self.state);
        (!state.lines.is_empty()).then(|| state.lines.clone())
    }

    /// Waits until the server has written too many lines that are not messages.
    pub(crate) async fn limit_exceeded(&self) {
        while lock(&self.state).count < MAX_STRAY_LINES {
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn exceeds_limit(stray: &StrayOutput) -> bool {
        tokio::time::timeout(Duration::from_mins(5), stray.limit_exceeded()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn many_lines_without_a_message_fail_early() {
        let stray = StrayOutput::default();
        assert!(!exceeds_limit(&stray).await && stray.lines().is_none());
        stray.record_line("\u{1b}one ".as_bytes());
        assert!(!exceeds_limit(&stray).await, "the server may still be starting");
        for _ in 1..MAX_STRAY_LINES {
            stray.record_line(b"more");
        }
        assert!(exceeds_limit(&stray).await);
        assert_eq!(stray.lines().unwrap(), ["\u{1b}one", "more", "more"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_banner_before_the_first_message_does_no_harm() {
        let stray = StrayOutput::default();
        stray.record_line(b"starting");
        stray.record_message();
        for _ in 0..2 * MAX_STRAY_LINES {
            stray.record_line(b"more");
        }
        assert!(!exceeds_limit(&stray).await && stray.lines().is_none());
    }
}
