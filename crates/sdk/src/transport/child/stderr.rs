//! Standard error of a child: passed to the hook line by line. The tail is stored, since it often contains the
//! reason for an exit.

use super::Hook;

/// Size of the stored end of the child's standard error, in bytes.
const TAIL_BYTES: usize = 4 * 1024;
/// Maximum length of a line of a server's standard error; the rest is not shown.
const MAX_LINE_LEN: usize = 64 * 1024;

pub(super) struct StderrTail {
    hook: Option<Hook>,
    line: Vec<u8>,
    tail: Vec<u8>,
    is_cut: bool,
}

impl StderrTail {
    pub(super) fn new(hook: Option<Hook>) -> Self {
        StderrTail { hook, line: Vec::new(), tail: Vec::new(), is_cut: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.append_tail(bytes);
        let Some(hook) = &self.hook else { return };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let more = text.unwrap_or(piece);
            let available = MAX_LINE_LEN - self.line.len();
            self.line.extend_from_slice(&more[..more.len().min(available)]);
            if text.is_some() {
                hook.call(&self.line);
                self.line.clear();
            }
        }
    }

    /// Passes on the last line at the end of the stream, even without a newline.
    pub(super) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        if let Some(hook) = self.hook.as_ref().filter(|_| !line.is_empty()) {
            hook.call(&line);
        }
    }

    fn append_tail(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.is_cut |= surplus > 0 || bytes.len() > TAIL_BYTES;
        self.tail.drain(..surplus);
    }

    /// Returns the last part of the child's standard error, if there is any output.
    pub(super) fn tail(&self) -> Option<String> {
        // A truncated tail may start in the middle of a character.
        let is_rest = |byte: &&u8| self.is_cut && **byte & 0xC0 == 0x80;
        let start = self.tail.iter().take(3).take_while(is_rest).count();
        // The text is shown to users and must not control their terminals.
        let sanitize =
            |char: char| if char.is_control() && char != '\n' && char != '\t' { '\u{FFFD}' } else { char };
        let text: String = String::from_utf8_lossy(&self.tail[start..])
            .replace("\r\n", "\n")
            .chars()
            .map(sanitize)
            .collect();
        let text = text.trim();
        (!text.is_empty()).then(|| format!("{}{text}", if self.is_cut { "…" } else { "" }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn lines_are_cut_and_the_end_is_kept() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let recorded = lines.clone();
        let mut tail =
            StderrTail::new(Some(Hook::new(move |line| recorded.lock().unwrap().push(line.to_owned()))));
        assert_eq!(tail.tail(), None);
        tail.push(b"one\r\ntw");
        tail.push(b"o\n\n");
        assert_eq!(tail.tail().unwrap(), "one\ntwo");
        let long = "x".repeat(MAX_LINE_LEN + 1);
        tail.push(long.as_bytes());
        tail.push(b"not shown\nlast");
        tail.finish();
        assert_eq!(*lines.lock().unwrap(), ["one", "two", "", &long[1..], "last"]);
        let last = tail.tail().unwrap();
        assert!(last.starts_with("…x") && last.ends_with("not shown\nlast"), "{last}");
        assert_eq!(last.len(), TAIL_BYTES + "…".len());
    }

    #[test]
    fn terminals_are_told_nothing() {
        let mut tail = StderrTail::new(None);
        tail.push(b"\x1b[2Jgone\rhidden\x07");
        assert_eq!(tail.tail().unwrap(), "\u{FFFD}[2Jgone\u{FFFD}hidden\u{FFFD}");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let mut tail = StderrTail::new(None);
        tail.push("ä".repeat(TAIL_BYTES).as_bytes());
        tail.push(b"!");
        assert_eq!(tail.tail().unwrap(), format!("…{}!", "ä".repeat(TAIL_BYTES / 2 - 1)));
    }

    #[test]
    fn a_hook_may_panic() {
        let mut tail = StderrTail::new(Some(Hook::new(|_| panic!("by a hook, on purpose"))));
        tail.push(b"one\ntwo\n");
        assert_eq!(tail.tail().unwrap(), "one\ntwo");
    }
}
