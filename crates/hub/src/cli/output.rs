//! Output of commands: a table, or one JSON value with `--json`.

use std::io;

use serde_json::Value;

use super::print;
use crate::terminal::{Cell, OutputStyle, Style, one_line, sanitize, table};

/// Column of a list, or line of a single item: heading, JSON pointers of the value, and style. The second pointer is
/// used if the first one has no value.
pub(crate) struct Column(&'static str, [&'static str; 2], Style);

/// Creates a table column that shows the value at this JSON pointer.
pub(crate) const fn column(heading: &'static str, pointer: &'static str) -> Column {
    Column(heading, [pointer, pointer], Style::Plain)
}

/// Creates a table column that shows the first of these JSON pointers that has a value, for example a name or else an
/// id.
pub(crate) const fn column_or(
    heading: &'static str,
    pointer: &'static str,
    placeholder: &'static str,
) -> Column {
    Column(heading, [pointer, placeholder], Style::Plain)
}

/// Like [`column`], highlighted as the name of the item.
pub(crate) const fn name_column(heading: &'static str, pointer: &'static str) -> Column {
    Column(heading, [pointer, pointer], Style::Name)
}

/// Output format of a command: text, or JSON with `--json`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether to print one JSON value instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints a list: as JSON, as a table, or the text `empty_text` if it is empty.
    pub(crate) fn print_list(self, items: &[Value], columns: &[Column], empty_text: &str) -> io::Result<()> {
        if self.json {
            return self.print_value(&Value::Array(items.to_vec()));
        }
        if items.is_empty() {
            return print(&format!("{empty_text}\n"));
        }
        let heading = columns.iter().map(|Column(heading, ..)| Cell::new(*heading, Style::Dim)).collect();
        let row = |item: &Value| columns.iter().map(|field| field.cell(item)).collect();
        let rows: Vec<Vec<Cell>> = std::iter::once(heading).chain(items.iter().map(row)).collect();
        print(&table(&rows, 0, OutputStyle::stdout()))
    }

    /// Prints one item: as JSON, or with a line for each column that has a value.
    pub(crate) fn print_details(self, item: &Value, columns: &[Column]) -> io::Result<()> {
        if self.json {
            return self.print_value(item);
        }
        let line = |field: &Column| vec![Cell::new(field.0, Style::Dim), field.cell(item)];
        let has_value = |field: &&Column| !is_empty_value(field.value(item));
        let rows: Vec<_> = columns.iter().filter(has_value).map(line).collect();
        print(&table(&rows, 0, OutputStyle::stdout()))
    }

    /// Prints the result of a change: the response as JSON, or the text.
    pub(crate) fn print_result(self, response: &Value, text: &str) -> io::Result<()> {
        if self.json { self.print_value(response) } else { print(&format!("{text}\n")) }
    }

    /// Prints a JSON value: on one line with `--json`, else indented.
    pub(crate) fn print_value(self, value: &Value) -> io::Result<()> {
        print(&if self.json { format!("{value}\n") } else { format!("{value:#}\n") })
    }
}

impl Column {
    fn value<'a>(&self, item: &'a Value) -> &'a Value {
        let found =
            self.1.iter().filter_map(|pointer| item.pointer(pointer)).find(|value| !is_empty_value(value));
        found.unwrap_or(&Value::Null)
    }

    fn cell(&self, item: &Value) -> Cell {
        let value = self.value(item);
        let text = format_value(value);
        let style = match (self.2, &*text) {
            (Style::Plain, "connected" | "success" | "trusted" | "approved") => Style::Good,
            (Style::Plain, "pending" | "connecting" | "new" | "unknown" | "changed") => Style::Warning,
            (Style::Plain, "error" | "denied" | "expired") => Style::Bad,
            (style, _) => style,
        };
        let cell = Cell::new(text, style);
        if value.is_object() { cell.preserve_spaces() } else { cell }
    }
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Formats a value on one line, without control characters.
fn format_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::String(text) => one_line(text),
        Value::Array(list) if list.iter().all(|item| !item.is_object()) => {
            list.iter().map(format_value).collect::<Vec<_>>().join(", ")
        }
        // A user approves arguments by this text: print them exactly, with all spaces.
        other => sanitize(&other.to_string()),
    }
}

/// Removes control characters if the output is a terminal; a pipe receives every byte.
pub(crate) fn printable(text: &str) -> String {
    if OutputStyle::stdout().is_terminal { sanitize(text) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_shown_or_else_an_id() {
        let field = column_or("who", "/name", "/id");
        assert_eq!(field.value(&json!({"id": 7, "name": "Ada"})), "Ada");
        assert_eq!(field.value(&json!({"id": 7, "name": null})), 7);
        assert_eq!(field.value(&json!({})), &Value::Null);
    }

    #[test]
    fn values_are_shown_on_one_line() {
        let cases = [
            (json!(null), ""),
            (json!(true), "yes"),
            (json!(7), "7"),
            (json!("a\n\u{1b}[31mb"), "a \u{FFFD}[31mb"),
            (json!(["a", 1]), "a, 1"),
            (json!({"a": [1]}), "{\"a\":[1]}"),
            (json!({"a  b": "\u{1b}[31m c\n   d\u{202E}"}), "{\"a  b\":\"\\u001b[31m c\\n   d\u{FFFD}\"}"),
        ];
        for (value, expected) in cases {
            assert_eq!(format_value(&value), expected);
        }
    }
}
