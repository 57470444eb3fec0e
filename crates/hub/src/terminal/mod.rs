//! What is known of the terminal: whether there is one, its width and its colours.
//!
//! [`text`] makes foreign text safe and fits it into the width, [`table`] aligns columns, and [`screen`] is
//! standard error while a call is under way, where lines, a bar and questions share the place.

mod screen;
mod table;
mod text;

use std::io::{self, IsTerminal};

pub(crate) use screen::Screen;
pub(crate) use table::{Cell, table};
pub(crate) use text::{clean, first_paragraph, one_line, quoted, shorten, width_of, wrap};

/// The least width that lines are fitted into.
const NARROWEST: usize = 40;

/// How something is to stand out.
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

/// How an output looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Whether a person sees it.
    pub(crate) is_terminal: bool,
    colours: bool,
    /// Characters on a line. What is not read on a terminal is not wrapped.
    pub(crate) width: usize,
}

impl Look {
    pub(crate) fn stdout() -> Self {
        Self::of(io::stdout().is_terminal(), rustix::termios::tcgetwinsize(io::stdout()).ok())
    }

    pub(crate) fn stderr() -> Self {
        Self::of(io::stderr().is_terminal(), rustix::termios::tcgetwinsize(io::stderr()).ok())
    }

    fn of(is_terminal: bool, size: Option<rustix::termios::Winsize>) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        // A terminal that does not know its size says 0.
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let width = if is_terminal { columns.unwrap_or(80).max(NARROWEST) } else { usize::MAX };
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Look { is_terminal, colours: is_terminal && !no_colour && !dumb, width }
    }

    /// For tests: no colours, and this width.
    #[cfg(test)]
    pub(crate) fn plain(width: usize) -> Self {
        Look { is_terminal: false, colours: false, width }
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
