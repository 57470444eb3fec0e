//! Codec for `application/x-www-form-urlencoded`, used by token requests and redirects.

use std::borrow::Cow;

/// Appends `name=value`, separated by `&` if needed.
pub(super) fn append(form: &mut String, name: &str, value: &str) {
    if !form.is_empty() && !form.ends_with(['?', '&']) {
        form.push('&');
    }
    form.push_str(name);
    form.push('=');
    encode_into(form, value);
}

/// Encodes a value for a URL-encoded form.
pub(super) fn encode_value(value: &str) -> String {
    let mut out = String::new();
    encode_into(&mut out, value);
    out
}

fn encode_into(out: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                out.push('%');
                out.push(DIGITS[usize::from(byte >> 4)].into());
                out.push(DIGITS[usize::from(byte & 15)].into());
            }
        }
    }
}

/// Decodes the pairs of a form. A `%` without two hex digits is taken literally.
pub(crate) fn decode(form: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let pairs = form.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_value(name), decode_value(value))
    })
}

fn decode_value(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, remainder @ ..] = rest {
        let digits = remainder.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, value) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &remainder[2..];
            }
            (first, _) => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = remainder;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut form = String::new();
        for (name, value) in [("a", "b c&=+%~ü"), ("empty", ""), ("url", "https://x/y?z")] {
            append(&mut form, name, value);
        }
        assert_eq!(form, "a=b%20c%26%3D%2B%25~%C3%BC&empty=&url=https%3A%2F%2Fx%2Fy%3Fz");
        let read: Vec<_> = decode(&form).collect();
        assert_eq!(read[0], ("a".into(), "b c&=+%~ü".into()));
        assert_eq!(read[1], ("empty".into(), "".into()));
        assert_eq!(encode_value("a:b"), "a%3Ab");
    }

    #[test]
    fn anything_can_be_read() {
        let read: Vec<_> = decode("&&a&b=1=2&c=%zz%4&d=x+y&%ff=1").collect();
        let read: Vec<_> = read.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(read, [("a", ""), ("b", "1=2"), ("c", "%zz%4"), ("d", "x y"), ("\u{fffd}", "1")]);
    }
}
