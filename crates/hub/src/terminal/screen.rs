//! Standard error during a call: lines from several threads, a progress bar below them, and prompts, which hide the
//! bar.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linchpin::server::Progress;

use super::{OutputStyle, Style, one_line, truncate};

const BAR_WIDTH: u16 = 24;

pub(crate) struct Screen {
    pub(crate) style: OutputStyle,
    state: Mutex<ScreenState>,
}

#[derive(Default)]
struct ScreenState {
    bar: Option<String>,
    /// Number of open prompts for user input, which hide the progress bar.
    open_prompts: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Screen { style: OutputStyle::stderr(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints one or more lines above the progress bar.
    pub(crate) fn line(&self, text: &str) {
        let state = self.state();
        let (before, after) = match &state.bar {
            Some(bar) if state.open_prompts == 0 => ("\r\x1b[K", &**bar),
            _ => ("", ""),
        };
        write_stderr(&format!("{before}{text}\n{after}"));
    }

    /// Prints a dimmed line above the progress bar.
    pub(crate) fn dim_line(&self, text: &str) {
        self.line(&self.style.paint(Style::Dim, text));
    }

    /// Prints a prompt without a newline; the user's input ends the line.
    pub(crate) fn prompt(&self, text: &str) {
        let _state = self.state();
        write_stderr(text);
    }

    /// Shows progress: a bar on a terminal, else a line.
    pub(crate) fn progress(&self, progress: &Progress) {
        let (done, message) = (progress.done(), one_line(progress.message().unwrap_or_default()));
        let count = progress.total().map_or_else(|| done.to_string(), |total| format!("{done}/{total}"));
        if !self.style.is_terminal {
            return self.line(format!("progress {count} {message}").trim_end());
        }
        let bar = progress.total().map(|total| format_bar(done / total, self.style)).unwrap_or_default();
        let left = self.style.width.saturating_sub(usize::from(BAR_WIDTH) + 4);
        let bar = format!("{bar}{}", truncate(format!("{count}  {message}").trim_end(), left));
        let mut state = self.state();
        if state.open_prompts == 0 {
            write_stderr(&format!("\r\x1b[K{bar}"));
        }
        state.bar = Some(bar);
    }

    /// Hides the progress bar until the returned guard is dropped.
    pub(crate) fn hide_bar(&self) -> PromptGuard<'_> {
        let mut state = self.state();
        if state.open_prompts == 0 && state.bar.is_some() {
            write_stderr("\r\x1b[K");
        }
        state.open_prompts += 1;
        PromptGuard(self)
    }

    /// Removes the progress bar from the terminal.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        if state.bar.take().is_some() && state.open_prompts == 0 {
            write_stderr("\r\x1b[K");
        }
    }
}

pub(crate) struct PromptGuard<'a>(&'a Screen);

impl Drop for PromptGuard<'_> {
    fn drop(&mut self) {
        self.0.state().open_prompts -= 1;
    }
}

fn format_bar(share: f64, style: OutputStyle) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let is_done = |step: &u16| f64::from(*step) < share * f64::from(BAR_WIDTH) - 0.5;
    let done = (0..BAR_WIDTH).take_while(is_done).count();
    let (full, rest) = ("━".repeat(done), "─".repeat(usize::from(BAR_WIDTH) - done));
    format!("{}{}  ", style.paint(Style::Good, &full), style.paint(Style::Dim, &rest))
}

/// Writes a text to standard error. Errors are ignored: there is no other output to report them on.
fn write_stderr(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills() {
        let filled = |share: f64| {
            format_bar(share, OutputStyle::plain(80)).chars().filter(|char| *char == '━').count()
        };
        assert_eq!([0.0, 0.5, 1.0, 7.0, f64::NAN].map(filled), [0, 12, 24, 24, 0]);
    }
}
