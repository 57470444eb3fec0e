//! Table with aligned columns; the last column is wrapped into the remaining width.

use std::fmt::Write as _;

use super::{Look, Style, width_of, wrap};

const GAP: usize = 2;
/// Minimum width of the last column; with less room it is printed below the others.
const LEAST: usize = 24;

/// Cell of a table.
pub(crate) struct Cell {
    text: String,
    style: Style,
    is_exact: bool,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        Cell { text: text.into(), style, is_exact: false }
    }

    /// Preserves all spaces: the text stays on one line of any length.
    pub(crate) fn exact(self) -> Self {
        Cell { is_exact: true, ..self }
    }

    fn lines(&self, width: usize) -> Vec<String> {
        if self.is_exact { vec![self.text.clone()] } else { wrap(&self.text, width) }
    }
}

/// Formats a table, each line indented by `indent`. All rows must have the same number of cells.
pub(crate) fn table(rows: &[Vec<Cell>], indent: usize, look: Look) -> String {
    let columns = rows.first().map_or(0, |row| row.len().saturating_sub(1));
    let widest = |column: usize| rows.iter().map(|row| width_of(&row[column].text)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let used = widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum::<usize>() + indent;
    let is_below = used.saturating_add(LEAST) > look.width;
    let (from, room) =
        if is_below { (indent + 4, look.width - indent - 4) } else { (used, look.width - used) };
    let mut out = String::new();
    for row in rows {
        let Some((last, cells)) = row.split_last() else { continue };
        let mut line = " ".repeat(indent);
        for (cell, width) in cells.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            let gap = " ".repeat(width + GAP - width_of(&cell.text));
            let _ = write!(line, "{}{gap}", look.paint(cell.style, &cell.text));
        }
        let mut wrapped = last.lines(room).into_iter();
        if let Some(first) = wrapped.next().filter(|_| !is_below) {
            line.push_str(&look.paint(last.style, &first));
        } else {
            wrapped = last.lines(room).into_iter();
        }
        let _ = writeln!(out, "{}", line.trim_end());
        for more in wrapped {
            let _ = writeln!(out, "{}{}", " ".repeat(from), look.paint(last.style, &more));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize) -> String {
        let row = |cells: [&str; 3]| cells.map(|cell| Cell::new(cell, Style::Name)).into();
        let rows =
            [row(["a", "", "the first of all the numbers"]), row(["bbb", "", ""]), row(["", "", "alone"])];
        table(&rows, 2, Look::plain(width))
    }

    #[test]
    fn columns_are_aligned_and_the_last_is_wrapped() {
        assert_eq!(shown(80), "  a    the first of all the numbers\n  bbb\n       alone\n");
        assert_eq!(shown(31), "  a    the first of all the\n       numbers\n  bbb\n       alone\n");
        assert_eq!(shown(30), "  a\n      the first of all the\n      numbers\n  bbb\n\n      alone\n");
        let exact = [vec![Cell::new("a", Style::Plain), Cell::new("one  two   three", Style::Plain).exact()]];
        assert_eq!(table(&exact, 0, Look::plain(30)), "a  one  two   three\n");
        assert_eq!(table(&exact, 0, Look::plain(10)), "a\n    one  two   three\n");
        assert_eq!(table(&[], 2, Look::plain(80)), "");
        assert!(shown(usize::MAX).starts_with("  a    the first"));
    }
}
