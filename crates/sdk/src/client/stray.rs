//! Stray output: what a server writes that is not a message. A server that writes nothing else does not speak the protocol, and
//! its connection fails before the timeout. A few lines before the first message do no harm: some servers print a banner.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::lock;

/// Stray lines without a message after which the connection fails.
const MAX_LINES: usize = 100;
/// Time after the first stray line within which a message must come.
const GRACE: Duration = Duration::from_secs(15);
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
    first: Option<Instant>,
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
        seen.first.get_or_insert_with(Instant::now);
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

    /// Waits until the output cannot be the protocol.
    pub(crate) async fn too_much(&self) {
        loop {
            let (first, count) = {
                let seen = lock(&self.seen);
                (seen.first, seen.count)
            };
            if count >= MAX_LINES || first.is_some_and(|first| first.elapsed() >= GRACE) {
                return;
            }
            match first {
                None => self.changed.notified().await,
                Some(first) => {
                    let more = self.changed.notified();
                    drop(tokio::time::timeout_at(first + GRACE, more).await);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fails_after(stray: &Stray) -> Option<Duration> {
        let begin = Instant::now();
        let minute = Duration::from_mins(1);
        tokio::time::timeout(minute, stray.too_much()).await.ok().map(|()| begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn output_without_a_message_fails_early() {
        let stray = Stray::default();
        assert_eq!((fails_after(&stray).await, stray.lines()), (None, None), "a silent server only is slow");
        stray.line("\u{1b}one ".as_bytes());
        let late = fails_after(&stray).await.unwrap();
        assert!(late >= GRACE && late < 2 * GRACE, "{late:?}");
        for _ in 1..MAX_LINES {
            stray.line(b"more");
        }
        assert_eq!(fails_after(&stray).await, Some(Duration::ZERO));
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
        assert_eq!((fails_after(&stray).await, stray.lines()), (None, None));
    }
}
