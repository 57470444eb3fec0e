//! The part of RFC 3986 that is needed to resolve a `$ref` within a schema document. Nothing is ever fetched.

use std::borrow::Cow;

/// Resolves a URI reference against a base URI. Neither has a fragment.
pub(crate) fn resolve(base: &str, reference: &str) -> String {
    if scheme_length(reference) > 0 {
        return reference.to_owned();
    }
    if reference.is_empty() {
        return base.to_owned();
    }
    let (scheme, rest) = base.split_at(scheme_length(base));
    if reference.starts_with("//") {
        return format!("{scheme}{reference}");
    }
    let path_at = match rest.strip_prefix("//") {
        Some(host) => 2 + host.find(['/', '?']).unwrap_or(host.len()),
        None => 0,
    };
    let (authority, path) = rest.split_at(path_at);
    let path = path.split('?').next().unwrap_or_default();
    if reference.starts_with('?') {
        return format!("{scheme}{authority}{path}{reference}");
    }
    let (reference, query) = match reference.find('?') {
        Some(at) => reference.split_at(at),
        None => (reference, ""),
    };
    let joined_path = if reference.starts_with('/') {
        reference.to_owned()
    } else {
        let folder = path.rfind('/').map_or(if authority.is_empty() { "" } else { "/" }, |at| &path[..=at]);
        format!("{folder}{reference}")
    };
    format!("{scheme}{authority}{}{query}", remove_dot_segments(&joined_path))
}

/// Returns the length of the scheme including its colon, or 0 if there is none.
fn scheme_length(text: &str) -> usize {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.find(':').filter(|at| is_scheme(&text[..*at])).map_or(0, |at| at + 1)
}

fn remove_dot_segments(path: &str) -> String {
    let (root, steps) = path.strip_prefix('/').map_or(("", path), |rest| ("/", rest));
    let mut segments = Vec::new();
    let mut steps = steps.split('/').peekable();
    while let Some(step) = steps.next() {
        match step {
            "." | ".." => {
                if step == ".." {
                    segments.pop();
                }
                if steps.peek().is_none() {
                    segments.push("");
                }
            }
            step => segments.push(step),
        }
    }
    format!("{root}{}", segments.join("/"))
}

/// Decodes the percent-encoding of a URI. Invalid escapes are copied unchanged; if the result is not UTF-8, the text is
/// returned unchanged.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, remainder)) = rest.split_first() {
        let digit = |at: usize| remainder.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (first, digit(0), digit(1)) {
            bytes.extend(u8::try_from(high * 16 + low));
            rest = &remainder[2..];
        } else {
            bytes.push(first);
            rest = remainder;
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_seen_from_their_base() {
        for (base, reference, expected) in [
            ("", "a.json", "a.json"),
            ("", "urn:x:y", "urn:x:y"),
            ("https://h/a/b", "c", "https://h/a/c"),
            ("https://h/a/b?q", "", "https://h/a/b?q"),
            ("https://h/a/b?q", "?r", "https://h/a/b?r"),
            ("https://h/a/b", "/c/./d/../e", "https://h/c/e"),
            ("https://h/a/b/", "../..", "https://h/"),
            ("https://h/a", "../../c?x=../y", "https://h/c?x=../y"),
            ("https://h", "c", "https://h/c"),
            ("https://h/a", "//i/j", "https://i/j"),
            ("a/b.json", "c.json", "a/c.json"),
            ("urn:a:b", "https://h/", "https://h/"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{base} {reference}");
        }
    }

    #[test]
    fn escapes_are_decoded() {
        for (text, expected) in
            [("a", "a"), ("%41%2f", "A/"), ("%4", "%4"), ("%zz", "%zz"), ("%ff", "%ff"), ("é%25", "é%")]
        {
            assert_eq!(decode(text), expected);
        }
    }
}
