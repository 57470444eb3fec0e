//! Skill URIs: `<root>/SKILL.md`, where the last segment of the root is the skill's name. The other files are below
//! the root.

use std::fmt::Write as _;

use super::SKILL_MD;

/// Maximum length of the name of a skill.
const MAX_NAME_LEN: usize = 64;

/// Returns the root of a skill, given the URI of its `SKILL.md`.
pub(crate) fn skill_root(uri: &str) -> Option<&str> {
    uri.strip_suffix(SKILL_MD)?.strip_suffix('/')
}

/// Validates a skill name: lowercase letters and digits, with single hyphens between them.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let letters = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if name.len() <= MAX_NAME_LEN && name.split('-').all(letters) {
        return Ok(());
    }
    Err(format!(
        "invalid name `{name}`: use up to {MAX_NAME_LEN} lowercase letters and digits, with single hyphens between them"
    ))
}

/// Encodes the relative path of a skill file as part of a URI. Empty segments, `.` and `..` are rejected, so the path
/// stays below its root.
pub(crate) fn encode_path(path: &str) -> Result<String, String> {
    let mut encoded = String::with_capacity(path.len());
    for (index, segment) in path.split('/').enumerate() {
        if segment.is_empty() || segment == "." || segment == ".." || segment.contains(['\\', '\0']) {
            return Err(format!(
                "`{path}` is not a path below the skill directory: write it as `folder/file.md`"
            ));
        }
        if index > 0 {
            encoded.push('/');
        }
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte) {
                encoded.push(char::from(byte));
            } else {
                let _ = write!(encoded, "%{byte:02X}"); // writing to a string cannot fail
            }
        }
    }
    Ok(encoded)
}

/// Normalizes a reference within a skill to a path below its root: `./a/../b.md` becomes `b.md`.
pub(crate) fn normalize(reference: &str) -> Result<String, String> {
    let outside_error = || format!("`{reference}` is outside the skill");
    if reference.starts_with('/') || reference.contains("://") {
        return Err(outside_error());
    }
    let mut path: Vec<&str> = Vec::new();
    for segment in reference.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(path.pop().ok_or_else(outside_error)?),
            segment => path.push(segment),
        }
    }
    Ok(path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_what_stands_before_skill_md() {
        assert_eq!(skill_root("skill://acme/refunds/SKILL.md"), Some("skill://acme/refunds"));
        assert_eq!(skill_root("skill://acme/refunds/skill.md"), None);
        assert_eq!(skill_root("skill://acme/xSKILL.md"), None);
    }

    #[test]
    fn names_keep_to_the_rules() {
        let longest = "a".repeat(64);
        for name in ["a", "git-workflow", "3d", "a-1-b", &longest] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let longer = "a".repeat(65);
        for name in ["", "-a", "a-", "a--b", "A", "a_b", "a b", "é", &longer] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn paths_are_encoded_and_stay_below() {
        assert_eq!(encode_path("references/My Guide#1.md").unwrap(), "references/My%20Guide%231.md");
        assert_eq!(encode_path("é@:").unwrap(), "%C3%A9%40%3A");
        for path in ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b"] {
            assert!(encode_path(path).is_err(), "{path}");
        }
        assert_eq!(normalize("./a/../b/c.md").unwrap(), "b/c.md");
        for reference in ["../a", "a/../../b", "/a", "skill://other/SKILL.md"] {
            assert!(normalize(reference).is_err(), "{reference}");
        }
    }
}
