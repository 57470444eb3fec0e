//! Slugs of servers and qualified names of tools: `mcp_<server>__<tool>`, stable and unique.
//!
//! A qualified name depends only on the slug of the server and the upstream name of the tool, never on other servers.
//! If the upstream name does not fit, a digest of it is added.

use crate::digest::Digest;
use crate::error::{Error, Result};

/// Maximum length of the slug of a server.
const MAX_SLUG_LEN: usize = 32;
/// Number of hexadecimal digits of the digest in a shortened tool name.
const DIGEST_LEN: usize = 8;

/// Maximum length of a qualified name for most models.
pub const MAX_NAME_LEN: usize = 128;
/// Maximum length of a qualified name for providers with a lower limit.
pub const MAX_NAME_LEN_SHORT: usize = 64;

/// Slug of a server: chosen when it is added, unique in its tenant, and immutable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Slug(String);

impl Slug {
    /// Validates a slug and creates it.
    pub fn new(text: &str) -> Result<Self> {
        let is_slug_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if (1..=MAX_SLUG_LEN).contains(&text.len()) && text.bytes().all(is_slug_byte) {
            return Ok(Slug(text.to_owned()));
        }
        let advice = Self::from_name(text).map(|slug| format!(": try `{}`", slug.0)).unwrap_or_default();
        let rule = format!("must be 1 to {MAX_SLUG_LEN} lowercase letters, digits and `-`{advice}");
        Err(Error::invalid("slug", rule))
    }

    /// Derives the slug of a server from its name. Returns `None` for a name without ASCII letters and digits.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut slug = String::new();
        for char in name.chars().flat_map(char::to_lowercase) {
            if char.is_ascii_lowercase() || char.is_ascii_digit() {
                slug.push(char);
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
        }
        slug.truncate(MAX_SLUG_LEN);
        let slug = slug.trim_end_matches('-');
        (!slug.is_empty()).then(|| Slug(slug.to_owned()))
    }

    /// Appends a number to the slug, because the slug is already in use.
    #[must_use]
    pub fn numbered(&self, number: usize) -> Self {
        let suffix = format!("-{number}");
        let kept_len = self.0.len().min(MAX_SLUG_LEN - suffix.len());
        Slug(format!("{}{suffix}", self.0[..kept_len].trim_end_matches('-')))
    }

    /// Returns the slug as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the qualified name of a tool (`mcp_SERVER__TOOL`), shortened to at most `max_len` characters.
pub fn qualified_name(server: &Slug, tool: &str, max_len: usize) -> String {
    let prefix = format!("mcp_{}__", server.0);
    let is_name_char = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let is_plain = !tool.is_empty() && tool.chars().all(is_name_char) && !has_digest_suffix(tool);
    if is_plain && prefix.len() + tool.len() <= max_len {
        return prefix + tool;
    }
    let digest = Digest::of("linchpin tool name").part(tool).finish().to_string();
    let available = max_len.saturating_sub(prefix.len() + 1 + DIGEST_LEN);
    let replaced: String =
        tool.chars().map(|char| if is_name_char(char) { char } else { '_' }).take(available).collect();
    format!("{prefix}{replaced}_{}", &digest[..DIGEST_LEN])
}

/// Returns whether a tool name ends like a shortened name with a digest: a server must not choose the qualified name of
/// another of its tools.
fn has_digest_suffix(tool: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    tool.len().checked_sub(DIGEST_LEN + 1).is_some_and(|start| {
        let suffix = &tool.as_bytes()[start..];
        suffix[0] == b'_' && suffix[1..].iter().all(is_digit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn slug(text: &str) -> Slug {
        Slug::new(text).unwrap()
    }

    #[test]
    fn slugs() {
        for good in ["a", "git-hub-2", &"x".repeat(32)] {
            assert_eq!(slug(good).as_str(), good);
        }
        for bad in ["", "A", "a_b", "a b", "ä", &"x".repeat(33)] {
            assert_eq!(Slug::new(bad).unwrap_err().field(), Some("slug"), "{bad}");
        }
        assert_eq!(
            Slug::new("My Server!").unwrap_err().message(),
            "must be 1 to 32 lowercase letters, digits and `-`: try `my-server`"
        );
        let from = |name: &str| Slug::from_name(name).map(|slug| slug.0);
        assert_eq!(from("  GitHub (work) ").as_deref(), Some("github-work"));
        assert_eq!(from("日本"), None);
        assert_eq!(from(&"long name ".repeat(9)).unwrap().len(), 32);
        assert_eq!(slug(&"x".repeat(32)).numbered(12).0, format!("{}-12", "x".repeat(29)));
    }

    #[test]
    fn what_fits_stays_and_what_does_not_gets_a_digest() {
        let server = slug("files");
        assert_eq!(qualified_name(&server, "read_file", MAX_NAME_LEN), "mcp_files__read_file");
        let dotted = qualified_name(&server, "read.file", MAX_NAME_LEN);
        assert!(dotted.starts_with("mcp_files__read_file_") && dotted.len() == 20 + 9, "{dotted}");
        assert_ne!(dotted, qualified_name(&server, "read/file", MAX_NAME_LEN));
        let long = "x".repeat(200);
        assert_eq!(qualified_name(&server, &long, MAX_NAME_LEN).len(), MAX_NAME_LEN);
        assert_eq!(
            qualified_name(&slug(&"s".repeat(32)), &long, MAX_NAME_LEN_SHORT).len(),
            MAX_NAME_LEN_SHORT
        );
        assert!(qualified_name(&server, "", MAX_NAME_LEN).starts_with("mcp_files___"));
        // A server cannot choose the qualified name of another tool.
        let adapted = dotted.strip_prefix("mcp_files__").unwrap();
        assert_ne!(qualified_name(&server, adapted, MAX_NAME_LEN), dotted);
    }

    proptest! {
        #[test]
        fn names_fit_and_differ(
            tools in prop::collection::hash_set(".{0,12}|[a-z_.]{100,140}", 1..40),
            servers in prop::collection::hash_set("[a-z0-9-]{1,32}", 1..4),
            max_len in prop_oneof![Just(MAX_NAME_LEN), Just(MAX_NAME_LEN_SHORT)],
        ) {
            let mut seen = HashMap::new();
            for server in &servers {
                for tool in &tools {
                    let name = qualified_name(&slug(server), tool, max_len);
                    prop_assert!(name.len() <= max_len);
                    prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
                    let before = seen.insert(name, (server, tool));
                    prop_assert_eq!(before, None);
                }
            }
        }
    }
}
