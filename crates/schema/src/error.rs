//! Validation errors, with their location in the value and the reason. Quoted values and reasons are truncated.

use std::fmt::{self, Write as _};
use std::io;

use serde_json::Value;

/// Maximum number of bytes of a value that the reason of a validation error quotes.
const MAX_SHOWN_BYTES: usize = 200;
/// Maximum number of bytes of the reason of a validation error.
const MAX_REASON_BYTES: usize = 600;

/// Error in a JSON Schema, or in a value that does not match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl ValidationError {
    /// Returns the location of the error as a JSON pointer into the schema or the value. Empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the reason why the schema or the value is invalid.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", if self.path.is_empty() { "/" } else { &self.path }, self.reason)
    }
}

impl std::error::Error for ValidationError {}

/// Location in the validated value, as a linked list on the stack: nothing is allocated until an error is found.
#[derive(Clone, Copy)]
pub(crate) enum InstancePath<'a> {
    Root,
    Key(&'a InstancePath<'a>, &'a str),
    Index(&'a InstancePath<'a>, usize),
}

impl InstancePath<'_> {
    pub(crate) fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut path = self;
        loop {
            path = match path {
                InstancePath::Root => break,
                InstancePath::Key(outer, _) | InstancePath::Index(outer, _) => {
                    steps.push(path);
                    outer
                }
            };
        }
        let mut pointer = String::new();
        for step in steps.into_iter().rev() {
            match step {
                InstancePath::Key(_, key) => push_token(&mut pointer, key),
                // Writing to a `String` cannot fail.
                InstancePath::Index(_, index) => drop(write!(pointer, "/{index}")),
                InstancePath::Root => {}
            }
        }
        pointer
    }
}

/// Appends a reference token to a JSON pointer.
pub(crate) fn push_token(pointer: &mut String, key: &str) {
    pointer.push('/');
    for one in key.chars() {
        match one {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            one => pointer.push(one),
        }
    }
}

/// Formats a value as JSON, truncated if it is long.
pub(crate) fn display_value(value: &Value) -> String {
    let mut writer = TruncatingWriter(Vec::new());
    let is_complete = serde_json::to_writer(&mut writer, value).is_ok();
    let mut text = String::from_utf8_lossy(&writer.0).into_owned();
    if !is_complete {
        // The truncation may have split a character.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
        text.push('…');
    }
    text
}

/// Truncates the reason of a validation error, whose content may come from untrusted input.
pub(crate) fn truncate_reason(mut reason: String) -> String {
    if reason.len() > MAX_REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        reason.push('…');
    }
    reason
}

struct TruncatingWriter(Vec<u8>);

impl io::Write for TruncatingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let available = MAX_SHOWN_BYTES - self.0.len();
        if available == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let length = available.min(bytes.len());
        self.0.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_pointers() {
        let outer = InstancePath::Key(&InstancePath::Root, "a/b~c");
        let inner = InstancePath::Index(&outer, 3);
        assert_eq!(InstancePath::Root.pointer(), "");
        assert_eq!(InstancePath::Key(&inner, "").pointer(), "/a~1b~0c/3/");
        let fault = ValidationError { path: String::new(), reason: "no".into() };
        assert_eq!(fault.to_string(), "at /: no");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(display_value(&json!({"a": [1, "b"]})), r#"{"a":[1,"b"]}"#);
        assert_eq!(display_value(&json!("é".repeat(500))), format!("\"{}…", "é".repeat(99)));
        assert_eq!(display_value(&json!("x".repeat(198))), format!("\"{}\"", "x".repeat(198)));
        assert_eq!(truncate_reason("é".repeat(301)), format!("{}…", "é".repeat(300)));
        assert_eq!(truncate_reason("é".repeat(300)), "é".repeat(300));
    }
}
