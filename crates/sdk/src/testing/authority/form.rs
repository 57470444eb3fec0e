//! Form and query encoding of the test authority, independent of the product: a bug shared by both sides would go
//! unnoticed.

/// Parameters of a form or query, in order.
pub(super) type Pairs = Vec<(String, String)>;

pub(super) fn decode(text: &str) -> Pairs {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(n, v)| (percent_decode(n), percent_decode(v)))
        .collect()
}

pub(super) fn encode<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs =
        pairs.into_iter().map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the value of a form or query parameter that occurs exactly once.
pub(super) fn find<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    let mut values = pairs.iter().filter(|(pair_name, _)| pair_name == name).map(|(_, value)| &**value);
    values.next().filter(|_| values.next().is_none())
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        let escaped = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(escaped.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn percent_encode(text: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_come_back_as_they_went() {
        let pairs = [("a b", "c&d=e"), ("é", "%+\r\n"), ("", "x")];
        let back = decode(&encode(pairs));
        assert_eq!(back, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(decode("a=b+c&d&%zz=%4"), [("a", "b c"), ("d", ""), ("%zz", "%4")].map(owned));
        assert_eq!(find(&decode("a=1&b=2&a=3"), "a"), None);
        assert_eq!(find(&decode("a=1&b=2"), "b"), Some("2"));
    }

    fn owned((name, value): (&str, &str)) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }
}
