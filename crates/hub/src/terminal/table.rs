//! Table with aligned columns; the last column is wrapped into the remaining width.

use std::fmt::Write as _;

use super::{OutputStyle, Style, display_width, wrap};

const COLUMN_GAP: usize = 2;
/// Minimum width of the last column; with less room it is printed below the others.
const MIN_LAST_COLUMN: usize = 24;

/// Cell of a table on the terminal.
pub(crate) struct Cell {
    text: String,
    style: Style,
    preserves_spaces: bool,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        Cell { text: text.into(), style, preserves_spaces: false }
    }

    /// Preserves all spaces: the text stays on one line of any length.
    pub(crate) fn preserve_spaces(self) -> Self {
        Cell { preserves_spaces: true, ..self }
    }

    fn lines(&self, width: usize) -> Vec<String> {
        if self.preserves_spaces { vec![self.text.clone()] } else { wrap(&self.text, width) }
    }
}

/// Formats a table, each line indented by `indent`. All rows must have the same number of cells.
pub(crate) fn table(rows: &[Vec<Cell>], indent: usize, style: OutputStyle) -> String {
    let columns = rows.first().map_or(0, |row| row.len().saturating_sub(1));
    let widest = |column: usize| rows.iter().map(|row| display_width(&row[column].text)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let used_width =
        widths.iter().filter(|width| **width > 0).map(|width| width + COLUMN_GAP).sum::<usize>() + indent;
    let is_last_below = used_width.saturating_add(MIN_LAST_COLUMN) > style.width;
    let (last_indent, last_width) = if is_last_below {
        (indent + 4, style.width - indent - 4)
    } else {
        (used_width, style.width - used_width)
    };
    let mut out = String::new();
    for row in rows {
        let Some((last, cells)) = row.split_last() else { continue };
        let mut line = " ".repeat(indent);
        for (cell, width) in cells.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            let gap = " ".repeat(width + COLUMN_GAP - display_width(&cell.text));
            let _ = write!(line, "{}{gap}", style.paint(cell.style, &cell.text));
        }
        let mut wrapped = last.lines(last_width).into_iter();
        if let Some(first) = wrapped.next().filter(|_| !is_last_below) {
            line.push_str(&style.paint(last.style, &first));
        } else {
            wrapped = last.lines(last_width).into_iter();
        }
        let _ = writeln!(out, "{}", line.trim_end());
        for more in wrapped {
            let _ = writeln!(out, "{}{}", " ".repeat(last_indent), style.paint(last.style, &more));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_sample(width: usize) -> String {
        let row = |cells: [&str; 3]| cells.map(|cell| Cell::new(cell, Style::Name)).into();
        let rows =
            [row(["a", "", "the first of all the numbers"]), row(["bbb", "", ""]), row(["", "", "alone"])];
        table(&rows, 2, OutputStyle::plain(width))
    }

    #[test]
    fn columns_are_aligned_and_the_last_is_wrapped() {
        assert_eq!(render_sample(80), "  a    the first of all the numbers\n  bbb\n       alone\n");
        assert_eq!(render_sample(31), "  a    the first of all the\n       numbers\n  bbb\n       alone\n");
        assert_eq!(
            render_sample(30),
            "  a\n      the first of all the\n      numbers\n  bbb\n\n      alone\n"
        );
        let exact = [vec![
            Cell::new("a", Style::Plain),
            Cell::new("one  two   three", Style::Plain).preserve_spaces(),
        ]];
        assert_eq!(table(&exact, 0, OutputStyle::plain(30)), "a  one  two   three\n");
        assert_eq!(table(&exact, 0, OutputStyle::plain(10)), "a\n    one  two   three\n");
        assert_eq!(table(&[], 2, OutputStyle::plain(80)), "");
        assert!(render_sample(usize::MAX).starts_with("  a    the first"));
    }
}
