//! Validation errors: location and reason. Quoted values and reasons are truncated.

use std::fmt::{self, Write as _};
use std::io;

use serde_json::Value;

/// Maximum number of bytes of a value that a reason quotes.
const SHOWN: usize = 200;
/// Maximum number of bytes of a reason.
const REASON: usize = 600;

/// Error in a schema or in a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl Fault {
    /// Returns the location as a JSON pointer into the schema or the value. Empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", if self.path.is_empty() { "/" } else { &self.path }, self.reason)
    }
}

impl std::error::Error for Fault {}

/// Location in the value, as a linked list on the stack: nothing is allocated until an error is found.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Root,
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl Place<'_> {
    pub(crate) fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut place = self;
        loop {
            place = match place {
                Place::Root => break,
                Place::Key(outer, _) | Place::Index(outer, _) => {
                    steps.push(place);
                    outer
                }
            };
        }
        let mut pointer = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Place::Key(_, key) => push_step(&mut pointer, key),
                // Writing to a `String` cannot fail.
                Place::Index(_, index) => drop(write!(pointer, "/{index}")),
                Place::Root => {}
            }
        }
        pointer
    }
}

/// Appends a reference token to a JSON pointer.
pub(crate) fn push_step(pointer: &mut String, key: &str) {
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
pub(crate) fn shown(value: &Value) -> String {
    let mut cut = Cut(Vec::new());
    let whole = serde_json::to_writer(&mut cut, value).is_ok();
    let mut text = String::from_utf8_lossy(&cut.0).into_owned();
    if !whole {
        // The truncation may have split a character.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
        text.push('…');
    }
    text
}

/// Truncates a reason: its content may come from untrusted input.
pub(crate) fn cut(mut reason: String) -> String {
    if reason.len() > REASON {
        reason.truncate(reason.floor_char_boundary(REASON));
        reason.push('…');
    }
    reason
}

struct Cut(Vec<u8>);

impl io::Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = SHOWN - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = room.min(bytes.len());
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
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
        let outer = Place::Key(&Place::Root, "a/b~c");
        let inner = Place::Index(&outer, 3);
        assert_eq!(Place::Root.pointer(), "");
        assert_eq!(Place::Key(&inner, "").pointer(), "/a~1b~0c/3/");
        let fault = Fault { path: String::new(), reason: "no".into() };
        assert_eq!(fault.to_string(), "at /: no");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(shown(&json!({"a": [1, "b"]})), r#"{"a":[1,"b"]}"#);
        assert_eq!(shown(&json!("é".repeat(500))), format!("\"{}…", "é".repeat(99)));
        assert_eq!(shown(&json!("x".repeat(198))), format!("\"{}\"", "x".repeat(198)));
        assert_eq!(cut("é".repeat(301)), format!("{}…", "é".repeat(300)));
        assert_eq!(cut("é".repeat(300)), "é".repeat(300));
    }
}
