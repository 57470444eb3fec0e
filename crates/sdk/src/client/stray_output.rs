//! Stray output: output of a server that is not a protocol message. If a server writes many lines and no message,
//! the connection fails before its timeout. A few lines before the first message are tolerated, since some servers
//! print a banner and start slowly. If no message follows before the timeout, the error quotes these lines.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::lock::lock;

/// Number of stray lines without a message after which the connection fails.
const MAX_LINES: usize = 100;
/// Number of quoted lines, and of characters of each.
const SHOWN: usize = 3;
const SHOWN_CHARS: usize = 200;

/// Stray output of one connection, until its first message.
#[derive(Default)]
pub(crate) struct Stray {
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Default)]
struct Seen {
    count: usize,
    lines: Vec<String>,
    has_message: bool,
}

impl Stray {
    /// Records a stray line. Returns whether it is one of the first, which are logged.
    pub(crate) fn line(&self, line: &[u8]) -> bool {
        let mut seen = lock(&self.seen);
        if seen.has_message {
            return true;
        }
        seen.count += 1;
        let is_shown = seen.lines.len() < SHOWN;
        if is_shown {
            let line = String::from_utf8_lossy(line);
            seen.lines.push(line.trim().chars().take(SHOWN_CHARS).collect());
        }
        self.changed.notify_one();
        is_shown
    }

    /// Records that the server sent a message.
    pub(crate) fn message(&self) {
        let mut seen = lock(&self.seen);
        if !seen.has_message {
            *seen = Seen { has_message: true, ..Seen::default() };
        }
    }

    /// Returns the first stray lines, if no message was received.
    pub(crate) fn lines(&self) -> Option<Vec<String>> {
        let seen = lock(&self.seen);
        (!seen.lines.is_empty()).then(|| seen.lines.clone())
    }

    /// Waits until there are too many stray lines.
    pub(crate) async fn too_much(&self) {
        while lock(&self.seen).count < MAX_LINES {
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_too_much(stray: &Stray) -> bool {
        tokio::time::timeout(Duration::from_mins(5), stray.too_much()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn many_lines_without_a_message_fail_early() {
        let stray = Stray::default();
        assert!(!is_too_much(&stray).await && stray.lines().is_none());
        stray.line("\u{1b}one ".as_bytes());
        assert!(!is_too_much(&stray).await, "the server may still be starting");
        for _ in 1..MAX_LINES {
            stray.line(b"more");
        }
        assert!(is_too_much(&stray).await);
        assert_eq!(stray.lines().unwrap(), ["\u{1b}one", "more", "more"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_banner_before_the_first_message_does_no_harm() {
        let stray = Stray::default();
        stray.line(b"starting");
        stray.message();
        for _ in 0..2 * MAX_LINES {
            stray.line(b"more");
        }
        assert!(!is_too_much(&stray).await && stray.lines().is_none());
    }
}
