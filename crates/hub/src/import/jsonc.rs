//! Parser for JSON with comments and trailing commas, as client configuration files contain it. The text is converted
//! to plain JSON of the same length, so that the positions in error messages stay correct.

use std::path::Path;

use linchpin::server::web::{Limits, ParseErrorKind, check_json};
use serde_json::Value;

use crate::config::ConfigError;

/// Limits of the JSON in an imported file. Clients store much other data beside their servers.
const LIMITS: Limits = Limits { depth: 128, keys: 100_000, values: 5_000_000 };

/// Parses the JSON text, with comments, of the file to import at `path`.
pub(super) fn read(path: &Path, text: &str) -> Result<Value, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let syntax_error = |message: &str, at: usize| ConfigError::new(path, message).at_span(text, Some(at..at));
    let plain = strip_comments(text).map_err(|at| syntax_error("unterminated comment", at))?;
    check_json(&plain, LIMITS).map_err(|error| match error.kind {
        ParseErrorKind::DuplicateKey => syntax_error("duplicate key: remove one of them", error.at),
        _ => syntax_error(&format!("invalid JSON: {}", error.message), error.at),
    })?;
    serde_json::from_str(&plain).map_err(|error| ConfigError::new(path, format!("invalid JSON: {error}")))
}

/// Replaces comments and trailing commas of JSON with spaces, so that positions stay unchanged. The error is the offset
/// of an unterminated comment.
fn strip_comments(text: &str) -> Result<String, usize> {
    let mut out = String::with_capacity(text.len());
    let (mut comma, mut last) = (None, ',');
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let at = text.len() - rest.len();
        let length = match char {
            '"' => string_len(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").ok_or(at)? + 4,
            _ => char.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        if char == '/' && length > 1 {
            out.extend(piece.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        } else {
            if let ('}' | ']', Some(position)) = (char, comma) {
                out.replace_range(position..=position, " ");
            }
            if !char.is_whitespace() {
                comma = (char == ',' && !"[{,".contains(last)).then_some(out.len());
                last = char;
            }
            out.push_str(piece);
        }
        rest = after;
    }
    Ok(out)
}

/// Returns the length of a quoted string, up to the end of the text if it is unterminated.
fn string_len(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|char| {
        let ends_string = char == '"' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        ends_string
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> String {
        read(Path::new("f.json"), text).unwrap_err().to_string()
    }

    #[test]
    fn comments_and_last_commas_are_passed_over() {
        let text = "\u{feff}// é\n{ /* a, \n b */ \"a//b\": [1, 2, /* c */ ], // ,\n \"c\\\"/*\": \"d,]\", \r\n}\n// end";
        assert_eq!(read(Path::new("f"), text).unwrap(), json!({"a//b": [1, 2], "c\"/*": "d,]"}));
        for text in ["{\"a\": 1, // é\n}", "[1,/**/]", "\"é\" //"] {
            assert_eq!(strip_comments(text).unwrap().len(), text.len(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(
            error("{\n  \"a\": 1,\n  // b\n  \"a\": 2\n}").split(": ").next(),
            Some("`f.json`, line 4, column 3")
        );
        assert!(error("{\"a\": 1, \"a\": 2}").ends_with("duplicate key: remove one of them"));
        assert!(error("{} /* x").starts_with("`f.json`, line 1, column 4: unterminated comment"));
        for text in ["", "{", "[,]", "[1,,]", "{,}", "\"a", "/", "/*/", "{\"a\": 'b'}", "\\", "\"\\"] {
            assert!(error(text).starts_with("`f.json`"), "{text}");
        }
        assert!(error(&"[".repeat(200)).contains("invalid JSON"), "too deep");
    }
}
