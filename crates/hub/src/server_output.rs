//! Output of a stdio server outside the protocol: standard error, and stray lines on standard output.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::terminal::{Screen, sanitize, truncate};

/// Number of recent lines of standard error that are retained for an error report.
const MAX_STDERR_LINES: usize = 20;
/// Maximum length of a retained line of a server's output.
const MAX_LINE_LEN: usize = 500;

/// Collector of what a stdio server writes outside the protocol, for error messages and `--verbose`.
pub(crate) struct ServerOutput {
    screen: Arc<Screen>,
    verbose: bool,
    lines: Mutex<VecDeque<String>>,
    stray: Mutex<Option<String>>,
}

impl ServerOutput {
    pub(crate) fn new(screen: Arc<Screen>, verbose: bool) -> Self {
        ServerOutput { screen, verbose, lines: Mutex::default(), stray: Mutex::default() }
    }

    pub(crate) fn on_stderr(&self, line: &str) {
        let line = truncate(&sanitize(line), MAX_LINE_LEN);
        if self.verbose {
            return self.screen.dim_line(&format!("server | {line}"));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_STDERR_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Records the first line of the server's standard output that cannot be a JSON-RPC message.
    pub(crate) fn on_stdout(&self, line: &str) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with(['{', '[']) {
            let mut stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner);
            stray.get_or_insert_with(|| truncate(&sanitize(line), 80));
        }
    }

    /// Prints a note about stray output on standard output, a server bug that often breaks the connection.
    pub(crate) fn warn_stray_output(&self) {
        let stray = self.stray.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stray) = stray {
            self.screen.dim_line(&format!(
                "note: the server wrote a line that is not a JSON-RPC message to standard output: {stray}\n      \
                 Standard output is reserved for messages; logs belong on standard error."
            ));
        }
    }

    pub(crate) fn stderr_tail(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
