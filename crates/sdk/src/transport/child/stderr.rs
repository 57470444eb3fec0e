//! Standard error of a child: passed to the hook line by line. The tail is stored, since it often contains the
//! reason for an exit.

use super::Hook;

/// Size of the stored tail in bytes.
const LAST: usize = 4 * 1024;
/// Maximum length of a line; the rest is not shown.
const LONGEST: usize = 64 * 1024;

pub(super) struct Words {
    hook: Option<Hook>,
    line: Vec<u8>,
    end: Vec<u8>,
    is_cut: bool,
}

impl Words {
    pub(super) fn new(hook: Option<Hook>) -> Self {
        Words { hook, line: Vec::new(), end: Vec::new(), is_cut: false }
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.keep(bytes);
        let Some(hook) = &self.hook else { return };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let more = text.unwrap_or(piece);
            let room = LONGEST - self.line.len();
            self.line.extend_from_slice(&more[..more.len().min(room)]);
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

    fn keep(&mut self, bytes: &[u8]) {
        self.end.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST)..]);
        let surplus = self.end.len().saturating_sub(LAST);
        self.is_cut |= surplus > 0 || bytes.len() > LAST;
        self.end.drain(..surplus);
    }

    /// Returns the tail, if there is any output.
    pub(super) fn last(&self) -> Option<String> {
        // A truncated tail may start in the middle of a character.
        let is_rest = |byte: &&u8| self.is_cut && **byte & 0xC0 == 0x80;
        let start = self.end.iter().take(3).take_while(is_rest).count();
        // The text is shown to users and must not control their terminals.
        let shown =
            |char: char| if char.is_control() && char != '\n' && char != '\t' { '\u{FFFD}' } else { char };
        let text: String =
            String::from_utf8_lossy(&self.end[start..]).replace("\r\n", "\n").chars().map(shown).collect();
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
        let shown = Arc::new(Mutex::new(Vec::new()));
        let show = shown.clone();
        let mut words = Words::new(Some(Hook::new(move |line| show.lock().unwrap().push(line.to_owned()))));
        assert_eq!(words.last(), None);
        words.hear(b"one\r\ntw");
        words.hear(b"o\n\n");
        assert_eq!(words.last().unwrap(), "one\ntwo");
        let long = "x".repeat(LONGEST + 1);
        words.hear(long.as_bytes());
        words.hear(b"not shown\nlast");
        words.finish();
        assert_eq!(*shown.lock().unwrap(), ["one", "two", "", &long[1..], "last"]);
        let last = words.last().unwrap();
        assert!(last.starts_with("…x") && last.ends_with("not shown\nlast"), "{last}");
        assert_eq!(last.len(), LAST + "…".len());
    }

    #[test]
    fn terminals_are_told_nothing() {
        let mut words = Words::new(None);
        words.hear(b"\x1b[2Jgone\rhidden\x07");
        assert_eq!(words.last().unwrap(), "\u{FFFD}[2Jgone\u{FFFD}hidden\u{FFFD}");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let mut words = Words::new(None);
        words.hear("ä".repeat(LAST).as_bytes());
        words.hear(b"!");
        assert_eq!(words.last().unwrap(), format!("…{}!", "ä".repeat(LAST / 2 - 1)));
    }

    #[test]
    fn a_hook_may_panic() {
        let mut words = Words::new(Some(Hook::new(|_| panic!("by a hook, on purpose"))));
        words.hear(b"one\ntwo\n");
        assert_eq!(words.last().unwrap(), "one\ntwo");
    }
}
