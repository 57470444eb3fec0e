//! URI patterns that select resources of a server: a URI, a prefix that ends with `*`, or a URI template.
//!
//! In a template, `{name}` stands for one or more characters other than `/`, and `{+name}` for one or more characters.
//! A prefix or template never matches a URI with `.` or `..` as a segment: the server may resolve them.

use crate::error::Result;

/// Maximum length of a pattern, in bytes.
pub(crate) const MAX_PATTERN_LEN: usize = 2_000;

/// Part of a URI template.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    /// One or more characters, which may be slashes or not.
    Expression {
        with_slashes: bool,
    },
}

/// Returns whether a resource URI matches a pattern.
pub(crate) fn matches(pattern: &str, uri: &str) -> bool {
    if pattern == "*" || pattern == uri {
        return true;
    }
    if has_dot_segment(uri) {
        return false;
    }
    match pattern.strip_suffix('*') {
        Some(prefix) => uri.starts_with(prefix),
        None => parse(pattern).is_ok_and(|parts| parts.len() > 1 && matches_parts(&parts, uri.as_bytes())),
    }
}

/// Returns whether a pattern covers all URIs of a template that a server lists.
pub(crate) fn covers_template(pattern: &str, template: &str) -> bool {
    pattern == template
        || pattern.strip_suffix('*').is_some_and(|prefix| {
            let fixed = template.split_once('{').map_or(template, |(fixed, _)| fixed);
            fixed.starts_with(prefix)
        })
}

/// Checks a pattern.
pub(crate) fn check(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN_LEN {
        return Err("must contain URIs of 1 to 2000 bytes");
    }
    match pattern.strip_suffix('*') {
        Some(prefix) if prefix.contains(['{', '}']) => {
            Err("must not contain a URI template that ends with `*`")
        }
        Some(_) => Ok(()),
        None => parse(pattern).map(drop),
    }
}

/// Splits a URI template into its parts.
fn parse(template: &str) -> Result<Vec<Part<'_>>, &'static str> {
    const INVALID: &str = "must contain only the expressions `{name}` and `{+name}` in URI templates";
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}').ok_or(INVALID)?;
        let name = expression.strip_prefix('+').unwrap_or(expression);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        if name.is_empty() || !name.bytes().all(is_name) || literal.contains('}') {
            return Err(INVALID);
        }
        parts.push(Part::Literal(literal));
        parts.push(Part::Expression { with_slashes: expression.len() > name.len() });
        rest = after;
    }
    if rest.contains('}') {
        return Err(INVALID);
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

/// Matches the parts of a template against a URI. Each part takes one pass over the URI, whatever the template.
fn matches_parts(parts: &[Part<'_>], uri: &[u8]) -> bool {
    // Positions of the URI at which the parts so far can end.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    for part in parts {
        let mut next = vec![false; uri.len() + 1];
        match part {
            Part::Literal(text) => {
                for start in (0..=uri.len()).filter(|start| ends[*start]) {
                    if uri[start..].starts_with(text.as_bytes()) {
                        next[start + text.len()] = true;
                    }
                }
            }
            Part::Expression { with_slashes } => {
                for end in 1..=uri.len() {
                    let can_continue = ends[end - 1] || next[end - 1];
                    next[end] = can_continue && (*with_slashes || uri[end - 1] != b'/');
                }
            }
        }
        ends = next;
    }
    ends[uri.len()]
}

/// Returns whether a URI has a segment `.` or `..`, also if it is percent-encoded or separated by backslashes.
fn has_dot_segment(uri: &str) -> bool {
    let decoded = uri.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    decoded.split(['/', '\\', '?', '#']).any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_match_exactly_by_prefix_or_by_template() {
        for (pattern, uri, expected) in [
            ("*", "memory://a", true),
            ("*", "file:///a/../b", true),
            ("memory://a", "memory://a", true),
            ("memory://a", "memory://ab", false),
            ("file:///a/../b", "file:///a/../b", true),
            ("file:///data/*", "file:///data/a/b", true),
            ("file:///data/*", "file:///data/", true),
            ("file:///data/*", "file:///other", false),
            ("file:///data/*", "file:///data/../etc/passwd", false),
            ("file:///data/*", "file:///data/%2E%2e/etc", false),
            ("file:///data/*", "file:///data/..%2Fetc", false),
            ("file:///data/*", "file:///data/..\\etc", false),
            ("file:///data/*", "file:///data/..%5Cetc", false),
            ("file:///data/*", "file:///data/a..b/...", true),
            ("notes://{name}", "notes://welcome", true),
            ("notes://{name}", "notes://", false),
            ("notes://{name}", "notes://a/b", false),
            ("notes://{name}", "notes://..", false),
            ("notes://{+path}", "notes://a/b", true),
            ("db://{table}/rows/{id}", "db://users/rows/7", true),
            ("db://{table}/rows/{id}", "db://users/rows/7/8", false),
            ("db://{+a}/rows/{id}", "db://x/rows/y/rows/7", true),
            ("{a}{b}", "xy", true),
            ("{a}{b}", "x", false),
        ] {
            assert_eq!(matches(pattern, uri), expected, "{pattern} {uri}");
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn other_expressions_are_rejected() {
        for pattern in
            ["", "a{", "a}", "{}", "{+}", "{?q}", "{/a}", "{a,b}", "{{a}}", "a}{b}", "{a}*", "{a b}"]
        {
            assert!(check(pattern).is_err(), "{pattern}");
            assert!(!matches(pattern, "a"), "{pattern}");
        }
        assert!(check(&"x".repeat(2_001)).is_err());
    }

    #[test]
    fn a_listed_template_is_covered_completely_or_not() {
        for (pattern, template, expected) in [
            ("*", "notes://{name}", true),
            ("notes://{name}", "notes://{name}", true),
            ("notes://*", "notes://{name}", true),
            ("notes://a*", "notes://{name}", false),
            ("notes://{n*", "notes://{name}", false),
            ("notes://a", "notes://{name}", false),
        ] {
            assert_eq!(covers_template(pattern, template), expected, "{pattern} {template}");
        }
    }

    #[test]
    fn matching_is_bounded() {
        let template = "{a}x".repeat(400);
        assert!(!matches(&template, &format!("{}y", "x".repeat(8_000))));
    }
}
