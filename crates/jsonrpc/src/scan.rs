//! Strict JSON scanner: a single pass over borrowed text that checks grammar, duplicate keys at any depth, nesting and
//! size, and returns slices. It builds no tree.

use crate::error::{ParseError, ParseErrorKind};
use crate::key_set::KeySet;
use crate::string::{escape, find_in_chunks, find_special, unescape};

/// Limits on the nesting and on the number of keys and values of a JSON-RPC message. [`crate::LineBuffer`] limits its
/// length.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum nesting depth of objects and arrays. Default: 64.
    pub depth: u32,
    /// Maximum number of keys in an object. Default: 10,000.
    pub keys: u32,
    /// Maximum number of values in a message. Default: 200,000.
    pub values: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, keys: 10_000, values: 200_000 }
    }
}

/// Checks a complete JSON text: grammar, duplicate keys and limits.
pub fn check(text: &str, limits: Limits) -> Result<(), ParseError> {
    let mut scan = Scan::new(text, limits);
    scan.value(0)?;
    scan.expect_end()
}

pub(crate) struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pub(crate) at: usize,
    values: u32,
    limits: Limits,
    skip_key_checks: bool,
}

/// JSON string as written between its quotes, and whether it contains escapes.
#[derive(Clone, Copy)]
pub(crate) struct RawString<'a> {
    pub(crate) raw: &'a str,
    pub(crate) escaped: bool,
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a str, limits: Limits) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, values: 0, limits, skip_key_checks: false }
    }

    /// Skips the checks for duplicate and reserved keys; a later pass does them.
    pub(crate) fn skip_key_checks(&mut self) {
        self.skip_key_checks = true;
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn fail<T>(&self, kind: ParseErrorKind, message: &'static str) -> Result<T> {
        Err(ParseError::new(kind, self.at, message))
    }

    fn syntax_error<T>(&self, message: &'static str) -> Result<T> {
        self.fail(ParseErrorKind::Syntax, message)
    }

    /// Returns the next byte that is not white space, without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Checks that only white space follows.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.syntax_error("unexpected characters after the JSON value"),
        }
    }

    /// Skips one JSON value and returns its text.
    pub(crate) fn value(&mut self, depth: u32) -> Result<&'a str> {
        let first = self.peek();
        let start = self.at;
        self.values += 1;
        if self.values > self.limits.values {
            return self.fail(ParseErrorKind::Limit, "the message contains too many values");
        }
        match first {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{') => self.object(depth, |scan, _, depth| scan.value(depth).map(drop))?,
            Some(b'[') => self.array(depth)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            Some(_) => return self.syntax_error("expected a JSON value"),
            None => return self.syntax_error("unexpected end of the JSON text"),
        }
        Ok(&self.text[start..self.at])
    }

    /// Skips one JSON object. `member` is called after each key and must skip the value.
    pub(crate) fn object(
        &mut self,
        depth: u32,
        mut member: impl FnMut(&mut Self, RawString<'a>, u32) -> Result<()>,
    ) -> Result<()> {
        self.check_depth(depth)?;
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut keys = KeySet::new();
        let mut count = 0;
        loop {
            if self.peek() != Some(b'"') {
                return self.syntax_error("expected a key in quotes");
            }
            let start = self.at;
            let key = self.string()?;
            count += 1;
            if count > self.limits.keys {
                return self.fail(ParseErrorKind::Limit, "an object contains too many keys");
            }
            if !self.skip_key_checks && !keys.insert(key.raw, key.escaped) {
                let message =
                    format!("the key \"{}\" occurs twice in one object", truncate_for_message(key.raw));
                return Err(ParseError::new(ParseErrorKind::DuplicateKey, start, message));
            }
            let may_be_reserved = key.escaped || key.raw.as_bytes().first() == Some(&b'$');
            if may_be_reserved && !self.skip_key_checks && is_reserved(key) {
                let message = "a key that begins with \"$serde_json::private\" is not accepted";
                return Err(ParseError::new(ParseErrorKind::Shape, start, message));
            }
            if self.peek() != Some(b':') {
                return self.syntax_error("expected a colon after the key");
            }
            self.at += 1;
            member(self, key, depth + 1)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.syntax_error("expected a comma or a closing brace"),
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<()> {
        self.elements(depth, |_| ())
    }

    /// Skips one JSON array and calls `element` with the text of each element.
    pub(crate) fn elements(&mut self, depth: u32, mut element: impl FnMut(&'a str)) -> Result<()> {
        self.check_depth(depth)?;
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            element(self.value(depth + 1)?);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.syntax_error("expected a comma or a closing bracket"),
            }
        }
    }

    fn check_depth(&self, depth: u32) -> Result<()> {
        if depth >= self.limits.depth {
            return self.fail(ParseErrorKind::Limit, "objects and arrays are nested too deeply");
        }
        Ok(())
    }

    /// Skips one JSON string. The scanner must be at its opening quote.
    pub(crate) fn string(&mut self) -> Result<RawString<'a>> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        self.at += find_special(&self.bytes[self.at..]);
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(RawString { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    match escape(&self.text[self.at..]) {
                        Some((_, length)) => {
                            self.at += length;
                            self.at += find_in_chunks(&self.bytes[self.at..]);
                        }
                        None => return self.syntax_error("invalid escape sequence in a string"),
                    }
                }
                Some(_) => return self.syntax_error("a control character in a string must be escaped"),
                None => return self.syntax_error("the string has no closing quote"),
            }
        }
    }

    fn number(&mut self) -> Result<()> {
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return self.syntax_error("expected a digit"),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 { self.syntax_error("expected a digit") } else { Ok(()) }
    }

    fn literal(&mut self, word: &str) -> Result<()> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return self.syntax_error("expected a JSON value");
        }
        self.at += word.len();
        Ok(())
    }
}

/// Reports whether `serde_json` treats a key specially. An object with such a key would decode to something other than
/// its text, so that a check and the code acting on the value could see different values.
fn is_reserved(key: RawString<'_>) -> bool {
    let reserved = |key: &str| key.starts_with("$serde_json::private");
    if key.escaped { reserved(&unescape(key.raw)) } else { reserved(key.raw) }
}

/// Truncates untrusted text, such as a key, to 64 bytes for error messages.
pub(crate) fn truncate_for_message(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error_kind(text: &str) -> Option<ParseErrorKind> {
        check(text, Limits::default()).err().map(|error| error.kind)
    }

    #[test]
    fn grammar() {
        for good in
            ["0", "-0.5e+3", "\"\"", "[]", "{}", " [1, {\"a\": null}] ", "true", "\"\\u00e9\\n\"", "1E5"]
        {
            assert_eq!(error_kind(good), None, "{good}");
        }
        for bad in [
            "",
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "nul",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "'a'",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "[1 2]",
            "{\"a\" 1}",
            "1 2",
            "\"open",
            "[",
            "{\"a\":",
            "NaN",
            "\u{feff}1",
        ] {
            assert_eq!(error_kind(bad), Some(ParseErrorKind::Syntax), "{bad}");
        }
    }

    #[test]
    fn duplicate_keys_are_found_at_any_depth_and_under_escapes() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"x":[{"deep":{"k":1,"k":1}}]}"#,
            r#"{"name":1,"n\u0061me":2}"#,
            r#"{"n\u0061me":1,"name":2}"#,
            r#"{"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"10":0,"3":0}"#,
        ] {
            assert_eq!(error_kind(text), Some(ParseErrorKind::DuplicateKey), "{text}");
        }
        assert_eq!(error_kind(r#"{"a":{"k":1},"b":{"k":1}}"#), None);
    }

    #[test]
    fn keys_with_a_meaning_of_their_own_are_refused() {
        for text in [
            r#"{"$serde_json::private::RawValue":"{}"}"#,
            r#"[{"a":{"\u0024serde_json::private::Number":"1"}}]"#,
        ] {
            assert_eq!(error_kind(text), Some(ParseErrorKind::Shape), "{text}");
        }
        assert_eq!(error_kind(r##"{"$ref":"#","$serde":1}"##), None);
    }

    #[test]
    fn limits() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(error_kind(&nested(64)), None);
        assert_eq!(error_kind(&nested(65)), Some(ParseErrorKind::Limit));
        assert_eq!(error_kind(&nested(100_000)), Some(ParseErrorKind::Limit));
        let keys = |count: usize| {
            format!("{{{}}}", (0..count).map(|key| format!("\"{key}\":0")).collect::<Vec<_>>().join(","))
        };
        assert_eq!(error_kind(&keys(10_000)), None);
        assert_eq!(error_kind(&keys(10_001)), Some(ParseErrorKind::Limit));
        assert_eq!(error_kind(&format!("[{}0]", "0,".repeat(200_000))), Some(ParseErrorKind::Limit));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_any_text(text in r#"[\[\]{}:,"\\a10.eE\-+ ntu]{0,40}"#) {
            // serde_json uses the last of two equal keys and rejects numbers out of the range of f64; all else must
            // agree.
            match check(&text, Limits::default()) {
                Ok(()) => prop_assert!(
                    serde_json::from_str::<&serde_json::value::RawValue>(text.trim()).is_ok(), "{}", text
                ),
                Err(error) if error.kind == ParseErrorKind::Syntax => {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "{}", text);
                }
                Err(_) => {}
            }
        }
    }
}
