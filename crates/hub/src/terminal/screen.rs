//! Standard error during a call: lines from several threads, a progress bar below them, and prompts, which hide the
//! bar.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linchpin::server::Progress;

use super::{Look, Style, one_line, shorten};

const BAR: u16 = 24;

pub(crate) struct Screen {
    pub(crate) look: Look,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bar: Option<String>,
    /// Number of open prompts.
    held: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Screen { look: Look::stderr(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints one or more lines above the progress bar.
    pub(crate) fn line(&self, text: &str) {
        let state = self.state();
        let (before, after) = match &state.bar {
            Some(bar) if state.held == 0 => ("\r\x1b[K", &**bar),
            _ => ("", ""),
        };
        write(&format!("{before}{text}\n{after}"));
    }

    /// Prints a dimmed line.
    pub(crate) fn aside(&self, text: &str) {
        self.line(&self.look.paint(Style::Dim, text));
    }

    /// Prints a prompt without a newline; the user's input ends the line.
    pub(crate) fn prompt(&self, text: &str) {
        let _state = self.state();
        write(text);
    }

    /// Shows progress: a bar on a terminal, else a line.
    pub(crate) fn progress(&self, progress: &Progress) {
        let (done, message) = (progress.done(), one_line(progress.message().unwrap_or_default()));
        let count = progress.total().map_or_else(|| done.to_string(), |total| format!("{done}/{total}"));
        if !self.look.is_terminal {
            return self.line(format!("progress {count} {message}").trim_end());
        }
        let bar = progress.total().map(|total| bar(done / total, self.look)).unwrap_or_default();
        let left = self.look.width.saturating_sub(usize::from(BAR) + 4);
        let bar = format!("{bar}{}", shorten(format!("{count}  {message}").trim_end(), left));
        let mut state = self.state();
        if state.held == 0 {
            write(&format!("\r\x1b[K{bar}"));
        }
        state.bar = Some(bar);
    }

    /// Hides the progress bar until the returned guard is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        let mut state = self.state();
        if state.held == 0 && state.bar.is_some() {
            write("\r\x1b[K");
        }
        state.held += 1;
        Held(self)
    }

    /// Removes the progress bar.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        if state.bar.take().is_some() && state.held == 0 {
            write("\r\x1b[K");
        }
    }
}

pub(crate) struct Held<'a>(&'a Screen);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state().held -= 1;
    }
}

fn bar(share: f64, look: Look) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let is_done = |step: &u16| f64::from(*step) < share * f64::from(BAR) - 0.5;
    let done = (0..BAR).take_while(is_done).count();
    let (full, rest) = ("━".repeat(done), "─".repeat(usize::from(BAR) - done));
    format!("{}{}  ", look.paint(Style::Good, &full), look.paint(Style::Dim, &rest))
}

/// Writes to standard error. Errors are ignored: there is no other output to report them on.
fn write(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills() {
        let filled = |share: f64| bar(share, Look::plain(80)).chars().filter(|char| *char == '━').count();
        assert_eq!([0.0, 0.5, 1.0, 7.0, f64::NAN].map(filled), [0, 12, 24, 24, 0]);
    }
}
