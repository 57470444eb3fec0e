//! What a server says beside the protocol, on its standard error and where it should not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::terminal::{Screen, clean, shorten};

/// Lines of a server's standard error that are kept for when it fails.
const KEPT: usize = 20;
const LONGEST: usize = 500;

/// What the server says beside the protocol.
pub(crate) struct Heard {
    screen: Arc<Screen>,
    verbose: bool,
    lines: Mutex<VecDeque<String>>,
    stray: Mutex<Option<String>>,
}

impl Heard {
    pub(crate) fn new(screen: Arc<Screen>, verbose: bool) -> Self {
        Heard { screen, verbose, lines: Mutex::default(), stray: Mutex::default() }
    }

    pub(crate) fn on_stderr(&self, line: &str) {
        let line = shorten(&clean(line), LONGEST);
        if self.verbose {
            return self.screen.aside(&format!("server | {line}"));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Keeps the first line that cannot be a message.
    pub(crate) fn on_stdout(&self, line: &str) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with(['{', '[']) {
            let mut stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner);
            stray.get_or_insert_with(|| shorten(&clean(line), 80));
        }
    }

    /// It is the server's mistake, and often the reason why nothing else works.
    pub(crate) fn show_stray(&self) {
        let stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stray) = stray {
            self.screen.aside(&format!(
                "note: the server wrote something that is no message on its standard output: {stray}\n      \
                 Only messages may go there; its logs belong on standard error."
            ));
        }
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
