//! Detection of secrets in configuration: by the name of a variable or header, or by the format of a value.

use crate::secrets::redact::is_secret_name;

/// Prefixes of tokens of well-known services, with their minimum length.
const TOKEN_PREFIXES: [(&str, usize); 20] = [
    ("ghp_", 12),
    ("gho_", 12),
    ("ghu_", 12),
    ("ghs_", 12),
    ("ghr_", 12),
    ("github_pat_", 16),
    ("glpat-", 14),
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("xoxb-", 14),
    ("xoxp-", 14),
    ("xapp-", 14),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 20),
    ("eyJ", 20),
    ("hf_", 16),
    ("npm_", 16),
];
/// Minimum length of an argument that is taken for a secret because of the name before it.
const MIN_ARGUMENT_SECRET_LEN: usize = 8;

/// Returns whether a variable or a header is secret, by its name or by its value.
pub fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) || contains_secret(value)
}

/// Returns whether a text contains a value in the format of a secret.
pub fn contains_secret(text: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
    let is_token = |word: &str| {
        TOKEN_PREFIXES.iter().any(|(prefix, min_len)| word.starts_with(prefix) && word.len() >= *min_len)
    };
    text.split(|char| !is_part(char)).any(is_token)
        || text.contains("PRIVATE KEY-----")
        || has_url_password(text)
}

/// Returns whether a URL in a text has a password.
fn has_url_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end =
            rest.find(|char: char| char.is_whitespace() || "/?#\"".contains(char)).unwrap_or(rest.len());
        rest[..end]
            .rsplit_once('@')
            .is_some_and(|(user_info, _)| user_info.split_once(':').is_some_and(|(_, word)| !word.is_empty()))
    })
}

/// Returns the index of the first argument that contains a secret. Every user of the machine can see arguments.
pub fn find_secret_argument(args: &[String]) -> Option<usize> {
    let is_value =
        |text: &str| text.len() >= MIN_ARGUMENT_SECRET_LEN && !text.starts_with(['/', '.', '~', '-', '$']);
    let named = |text: &str| {
        text.split_once('=').is_some_and(|(name, value)| is_secret_name(name) && is_value(value))
    };
    let queried = |text: &str| text.split_once("://").is_some() && text.split(['?', '&']).skip(1).any(named);
    args.iter().enumerate().position(|(index, text)| {
        let before = index.checked_sub(1).map(|before| &args[before]);
        let is_followed =
            before.is_some_and(|name| name.starts_with('-') && !name.contains('=') && is_secret_name(name));
        let header = text.split_once(':').is_some_and(|(name, value)| {
            !name.contains(['/', ' ']) && is_secret_name(name) && is_value(value.trim_start())
        });
        contains_secret(text) || named(text) || queried(text) || header || is_followed && is_value(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_look() {
        for text in [
            "ghp_0123456789",
            "Bearer github_pat_0123456789",
            "token=sk-ant-0123456789abc",
            "xoxb-0123456789",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "postgres://ada:canary@db.example/x",
            "-----BEGIN PRIVATE KEY-----\nMII",
        ] {
            assert!(contains_secret(text), "{text}");
        }
        for text in [
            "",
            "sk-learn",
            "ghp_",
            "production",
            "eyJ",
            "https://a.example:8080/@scope/x",
            "https://ada@a.example",
            "task-0123456789012345",
        ] {
            assert!(!contains_secret(text), "{text}");
        }
        assert!(is_secret("API_KEY", "a") && !is_secret("NODE_ENV", "production"));
    }

    #[test]
    fn secrets_are_found_in_arguments() {
        let find = |args: &[&str]| {
            find_secret_argument(&args.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(find(&["-y", "server", "--token", "canary-12345"]), Some(3));
        assert_eq!(find(&["--api-key=canary-12345"]), Some(0));
        assert_eq!(find(&["run", "-e", "GITHUB_TOKEN=canary-12345"]), Some(2));
        assert_eq!(find(&["--header", "X-Api-Key: canary-12345"]), Some(1));
        assert_eq!(find(&["https://a.example/mcp?api_key=canary-12345"]), Some(0));
        assert_eq!(find(&["run", "-e", "GITHUB_TOKEN", "image"]), None);
        assert_eq!(find(&["--key-file", "/etc/key", "--auth", "none", "--token", "--verbose"]), None);
        assert_eq!(find(&["https://a.example/mcp?page=1", "--port=3000"]), None);
    }
}
