//! Detection of secrets in configuration: by the name of a variable or header, or by the format of a value.

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
/// Words that, anywhere in the name of a variable, header or parameter, show that its value is secret.
const SECRET_SUBSTRINGS: [&str; 9] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "credential",
    "signature",
    "databaseurl",
    "connectionstring",
];
/// Endings of the words of a name that show that its value is secret.
const SECRET_SUFFIXES: [&str; 6] = ["key", "token", "pass", "pwd", "auth", "authorization"];
/// Ordinary words that have an ending of [`SECRET_SUFFIXES`] and do not make a name secret.
const ORDINARY_WORDS: [&str; 8] =
    ["monkey", "donkey", "turkey", "hockey", "hotkey", "whiskey", "bypass", "compass"];
/// Words that, directly before `key`, show that the value of a name is not secret, as in `primary_key`.
const ORDINARY_KEYS: [&str; 11] = [
    "idempotency",
    "partition",
    "routing",
    "sort",
    "primary",
    "foreign",
    "public",
    "shard",
    "cache",
    "row",
    "column",
];
/// Words that, as a separate word of a name, show that its value is secret.
const SECRET_WORDS: [&str; 8] = ["private", "pat", "dsn", "sig", "pw", "jwt", "bearer", "cookie"];
/// Minimum length of an argument that is taken for a secret because of the name before it.
const MIN_ARGUMENT_SECRET_LEN: usize = 8;

/// Returns whether the value of a variable, a header or a parameter is secret by its name.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let compact_name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let (mut parts, mut before) = (name.split(|char: char| !char.is_ascii_alphanumeric()), "");
    SECRET_SUBSTRINGS.iter().any(|word| compact_name.contains(word))
        || parts.any(|part| {
            let part = part.trim_end_matches(|char: char| char.is_ascii_digit());
            let forms = [part, part.strip_suffix('s').unwrap_or(part)];
            let has_secret_suffix = |part: &&str| SECRET_SUFFIXES.iter().any(|word| part.ends_with(word));
            let is_ordinary = forms.iter().any(|part| ORDINARY_WORDS.contains(part));
            let is_other_key = forms.contains(&"key") && ORDINARY_KEYS.contains(&before);
            before = part;
            SECRET_WORDS.contains(&part)
                || !is_ordinary && !is_other_key && forms.iter().any(has_secret_suffix)
        })
}

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
        let follows_flag =
            before.is_some_and(|name| name.starts_with('-') && !name.contains('=') && is_secret_name(name));
        let header = text.split_once(':').is_some_and(|(name, value)| {
            !name.contains(['/', ' ']) && is_secret_name(name) && is_value(value.trim_start())
        });
        contains_secret(text) || named(text) || queried(text) || header || follows_flag && is_value(text)
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

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "GITHUB_PAT",
            "SENTRY_DSN",
            "DATABASE_URL",
            "MYSQLPWD",
            "MYSQL_PWD",
            "PGPASSWORD",
            "APIKEY",
            "OPENAIKEY",
            "DB_PASS",
            "SMTPPASS",
            "KEY",
            "KEY_2",
            "TOKENS",
            "API_KEYS",
            "TOKEN1",
            "OAUTH2",
            "AUTH",
            "PRIVATE",
            "CREDENTIALS",
            "AZURE_STORAGE_CONNECTION_STRING",
            "SECRETKEYBASE",
            "x-api-key",
            "X-Auth-Token",
            "api-key",
            "ocp-apim-subscription-key",
            "x-functions-key",
            "partition-api-key",
            "x-client-secret",
            "x-password-hint",
            "x-authorization",
            "key",
            "token",
            "secret",
            "password",
            "sig",
            "signature",
            "api_key",
            "access_token",
            "accessToken",
            "apiKey",
            "X-Amz-Signature",
            "x.pat",
            "jwt",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "x-keyboard",
            "Idempotency-Key",
            "sort_key",
            "monkey",
            "monkeys",
            "tokenizer",
            "X-Author",
            "author",
            "keyword",
            "keywords",
            "pattern",
            "path",
            "x-team",
            "compass",
            "x-bypass-cache",
            "design",
            "signal",
            "x-request-id",
            "PATH",
            "HOME",
            "NODE_ENV",
            "LANG",
            "page",
            "tenant",
            "authority",
            "",
            "-",
            "s",
            "x-passage",
            "URL",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
