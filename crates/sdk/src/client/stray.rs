//! Stray output: what a server writes that is not a message. The connection fails before its timeout if a server writes many
//! lines and no message. A few lines before the first message do no harm: some servers print a banner, and then take long
//! to start. If no message follows until the timeout, the error quotes them.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::sync::lock;

/// Stray lines without a message after which the connection fails.
const MAX_LINES: usize = 100;
/// How many lines are shown, and how many characters of each.
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
    /// Records a line that is not a message. Returns whether it is one of the first, which are worth a log line.
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

    /// Records that a message came: the server speaks the protocol.
    pub(crate) fn message(&self) {
        let mut seen = lock(&self.seen);
        if !seen.has_message {
            *seen = Seen { has_message: true, ..Seen::default() };
        }
    }

    /// The first stray lines, if no message came.
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
