//! Terminal output: detection of the terminal, its width and its colours.
//!
//! [`text`] sanitizes and wraps untrusted text, [`mod@table`] aligns columns, and [`screen`] coordinates lines, a progress
//! bar and prompts on standard error during a call.

mod screen;
mod table;
mod text;

use std::io::{self, IsTerminal};

pub(crate) use screen::Screen;
pub(crate) use table::{Cell, table};
pub(crate) use text::{display_width, first_paragraph, one_line, sanitize, shell_quote, truncate, wrap};

/// Minimum width to which lines of terminal output are wrapped.
const MIN_WIDTH: usize = 40;

/// Style of a text on the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Name,
    Good,
    Warning,
    Bad,
}

/// Properties of standard output or standard error: whether it is a terminal, colours and width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputStyle {
    /// Whether the output is a terminal.
    pub(crate) is_terminal: bool,
    colours: bool,
    /// Columns per line; unlimited if the output is not a terminal.
    pub(crate) width: usize,
}

impl OutputStyle {
    pub(crate) fn stdout() -> Self {
        Self::detect(io::stdout().is_terminal(), rustix::termios::tcgetwinsize(io::stdout()).ok())
    }

    pub(crate) fn stderr() -> Self {
        Self::detect(io::stderr().is_terminal(), rustix::termios::tcgetwinsize(io::stderr()).ok())
    }

    fn detect(is_terminal: bool, size: Option<rustix::termios::Winsize>) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        // A terminal of unknown size reports 0 columns.
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let width = if is_terminal { columns.unwrap_or(80).max(MIN_WIDTH) } else { usize::MAX };
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        OutputStyle { is_terminal, colours: is_terminal && !no_colour && !dumb, width }
    }

    /// Creates a style without colours, for tests.
    #[cfg(test)]
    pub(crate) fn plain(width: usize) -> Self {
        OutputStyle { is_terminal: false, colours: false, width }
    }

    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            _ if !self.colours || text.is_empty() => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Name => "1;36",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
