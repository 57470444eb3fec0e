//! Header value encoding: plain text where it is safe, otherwise `=?base64?…?=`.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// Encodes a name or parameter as the text of the HTTP header value that mirrors it.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let padded = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bytes = text.as_bytes();
    let ambiguous = text.starts_with(PREFIX) && text.ends_with(SUFFIX);
    let trimmed = padded(bytes.first()) || padded(bytes.last());
    if !ambiguous && !trimmed && bytes.iter().all(|&byte| is_plain(byte)) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4 + SUFFIX.len());
    encoded.push_str(PREFIX);
    STANDARD.encode_string(bytes, &mut encoded);
    encoded.push_str(SUFFIX);
    Cow::Owned(encoded)
}

/// Decodes the text of a header value that mirrors a name or parameter. Returns `None` for forbidden characters,
/// invalid Base64 or invalid UTF-8.
pub(crate) fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    if !value.iter().all(|&byte| is_plain(byte)) {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let Some(inner) = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Some(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Returns whether a byte is visible ASCII, space or tab.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_the_specification() {
        let table = [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ];
        for (text, value) in table {
            assert_eq!(encode(text), value);
            assert_eq!(decode(value.as_bytes()).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_safe_stays_as_it_is() {
        for text in ["", "a b\tc", "=?base64?open", "?=", "=?BASE64?QQ==?=", "file:///a?b=c", "~"] {
            assert!(matches!(encode(text), Cow::Borrowed(same) if same == text), "{text:?}");
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(text));
        }
        for text in ["\ta", "a ", "\u{7f}", "a\0b", "a\r", "é", "=?base64??=", "=?base64?="] {
            let value = encode(text);
            assert!(
                value.starts_with(PREFIX) && value.len() > PREFIX.len() + SUFFIX.len(),
                "{text:?}: {value}"
            );
            assert_eq!(decode(value.as_bytes()).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_no_client_may_send_is_refused() {
        let refused: [&[u8]; 9] = [
            b"a\nb",
            b"a\0",
            b"\x7f",
            "é".as_bytes(),
            b"=?base64?QQ?=",
            b"=?base64?Q Q=?=",
            b"=?base64?QR==?=",
            b"=?base64?/w==?=",
            b"=?base64?-_-_?=",
        ];
        for value in refused {
            assert_eq!(decode(value), None, "{:?}", value.escape_ascii().to_string());
        }
        assert_eq!(decode(b"=?base64??=").as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn every_text_survives(text in any::<String>()) {
            let value = encode(&text);
            http::HeaderValue::from_str(&value).unwrap();
            prop_assert_eq!(value.trim(), &*value);
            let decoded = decode(value.as_bytes());
            prop_assert_eq!(decoded.as_deref(), Some(&*text));
        }
    }
}
