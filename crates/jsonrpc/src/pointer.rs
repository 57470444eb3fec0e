//! Conversion of byte offsets in JSON text to JSON pointers, for error messages.

use crate::scan::{Limits, Scan};
use crate::string::unescape;

/// Returns the JSON pointer of the innermost value of `text` that covers the byte `at`. It is empty for the whole text.
/// `text` must have been accepted by [`crate::check`]; for other text the pointer may be too short.
pub fn path_at(text: &str, at: usize) -> String {
    let mut path = String::new();
    descend(&mut Scan::new(text, Limits::default()), at, &mut path);
    path
}

fn descend(scan: &mut Scan<'_>, at: usize, path: &mut String) {
    match scan.peek() {
        Some(b'{') => {
            let _ = scan.object(0, |scan, key, _| {
                step(scan, at, path, || unescape(key.raw).replace('~', "~0").replace('/', "~1"))
            });
        }
        Some(b'[') => {
            let mut index = 0;
            scan.at += 1;
            while scan.peek().is_some_and(|byte| byte != b']') {
                if step(scan, at, path, || index.to_string()).is_err() || scan.peek() != Some(b',') {
                    return;
                }
                scan.at += 1;
                index += 1;
            }
        }
        _ => {}
    }
}

/// Skips one JSON value while searching for the value at a byte offset. If `at` is inside it, appends `name` to the
/// path, descends into the value and returns an error, which ends the search.
fn step(
    scan: &mut Scan<'_>,
    at: usize,
    path: &mut String,
    name: impl FnOnce() -> String,
) -> Result<(), crate::ParseError> {
    scan.peek();
    let start = scan.at;
    let text = scan.value(0)?;
    if !(start..start + text.len()).contains(&at) {
        return Ok(());
    }
    path.push('/');
    path.push_str(&name());
    descend(&mut Scan::new(text, Limits::default()), at - start, path);
    scan.fail(crate::ParseErrorKind::Shape, "found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_value_is_named() {
        let text = r#"{"a": 1, "list": [10, {"b/c": "x"}], "z~": null}"#;
        let path_of = |part: &str| path_at(text, text.find(part).unwrap());
        assert_eq!(path_of("1,"), "/a");
        assert_eq!(path_of("10"), "/list/0");
        assert_eq!(path_of("\"x\""), "/list/1/b~1c");
        assert_eq!(path_of("null"), "/z~0");
        assert_eq!(path_at(text, 0), "");
        assert_eq!(path_at(text, 10_000), "");
        assert_eq!(path_at("no json", 3), "");
    }
}
