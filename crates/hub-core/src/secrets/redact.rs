//! Redaction: replaces the credentials that were sent to a server by `***` wherever the server repeats them, in any
//! encoding.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use linchpin::auth::Secret;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::bounded_result::with_json;
use crate::connection::AuthMaterial;
use crate::lock::lock;
use crate::secrets::hub_secrets::{HubSecrets, SecretSearcher};
use crate::secrets::scan::is_secret_name;
use crate::server::{Authentication, Server, Transport};
use crate::text::{hex, unhex};

/// Minimum length of a redacted secret: shorter texts occur everywhere.
const MIN_SECRET_LEN: usize = 4;
/// Minimum length of a value that is a secret only by its name.
const MIN_NAMED_SECRET_LEN: usize = 8;
/// Minimum length from which the user of a URL without a password is taken for a token.
const MIN_URL_TOKEN_LEN: usize = 20;
/// Number of sign-ins and refreshes of a connection whose tokens are still redacted.
const MAX_TOKEN_SETS: usize = 8;
pub(crate) const MASK: &str = "***";

/// Secrets that are replaced by `***` in texts of one server.
#[derive(Default)]
pub(crate) struct Redactor {
    /// Finds the secrets in every encoding, the longest first. `None` if there are no secrets.
    matcher: Option<AhoCorasick>,
    /// OAuth tokens, which change while the connection is open.
    tokens: Option<Arc<IssuedTokens>>,
    /// Keys and tokens of the hub itself, which are redacted in every text.
    hub_secrets: Option<Arc<HubSecrets>>,
}

/// Tokens that were issued last for a server, which are redacted in its output.
#[derive(Default)]
pub struct IssuedTokens(Mutex<VecDeque<Redactor>>);

impl IssuedTokens {
    /// Adds the tokens of a stored grant to the values to redact.
    pub(crate) fn add(&self, record: &Secret) {
        let Ok(record) = serde_json::from_str::<Value>(record.expose()) else { return };
        let tokens = ["access_token", "refresh_token"].map(|name| record[name].as_str().map(Secret::new));
        let mut issued_tokens = lock(&self.0);
        if issued_tokens.len() >= MAX_TOKEN_SETS {
            issued_tokens.pop_front();
        }
        issued_tokens.push_back(Redactor::new(&tokens.into_iter().flatten().collect::<Vec<_>>()));
    }
}

impl Redactor {
    /// Creates the redactor of a server: its credential, the secrets in its environment, and those of the hub itself.
    pub(crate) fn for_server(
        server: &Server,
        proof: Option<&AuthMaterial>,
        hub_secrets: Option<&Arc<HubSecrets>>,
    ) -> Self {
        let mut secrets = Vec::new();
        if let Transport::Stdio(program) = &server.transport {
            for (name, value) in &program.env {
                let is_named = is_secret_name(name) && value.len() >= MIN_NAMED_SECRET_LEN;
                if is_named || program.secrets.contains(name) {
                    secrets.push(Secret::new(value.as_str()));
                }
                secrets.extend(url_credentials(value));
            }
        }
        let mut tokens = None;
        match proof {
            None => {}
            Some(AuthMaterial::OAuth(_, issued)) => tokens = Some(issued.clone()),
            Some(AuthMaterial::Secret(credential)) => {
                if let Authentication::Basic { username } = &server.settings.authentication {
                    secrets.push(Secret::new(format!("{username}:{}", credential.expose())));
                }
                secrets.push(credential.clone());
            }
        }
        Redactor { tokens, hub_secrets: hub_secrets.cloned(), ..Self::new(&secrets) }
    }

    fn new(secrets: &[Secret]) -> Self {
        let mut forms = Vec::new();
        for secret in secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= MIN_SECRET_LEN) {
            let digits = hex(secret.as_bytes());
            forms.extend([
                secret.to_owned(),
                digits.to_ascii_uppercase(),
                digits,
                percent_encode(secret, str::to_ascii_uppercase),
                percent_encode(secret, str::to_owned),
                json_escape(secret),
            ]);
            // Base64 of a longer text that contains the secret, at each of the three alignments.
            for begin in 0..3 {
                forms.extend([
                    aligned_digits(
                        &STANDARD_NO_PAD.encode(with_offset(secret.as_bytes(), begin)),
                        begin,
                        secret.len(),
                    ),
                    aligned_digits(
                        &URL_SAFE_NO_PAD.encode(with_offset(secret.as_bytes(), begin)),
                        begin,
                        secret.len(),
                    ),
                ]);
            }
        }
        let mut forms: Vec<_> = forms.into_iter().map(Zeroizing::new).collect();
        forms.retain(|form| form.len() >= MIN_SECRET_LEN);
        let matcher = (!forms.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(forms.iter().map(|form| form.as_bytes()))
                .expect("a server has too few secrets to exceed the pattern limit")
        });
        Redactor { matcher, tokens: None, hub_secrets: None }
    }

    /// Redacts secrets in a JSON value: in its strings and member names.
    pub(crate) fn redact(&self, mut value: Value) -> Value {
        self.redact_value(&mut value, self.hub_secrets.as_ref().map(|secrets| secrets.searcher()).as_deref());
        value
    }

    /// Redacts secrets in a JSON value, and returns it with its JSON text. The text is searched first: only if it may
    /// contain a secret, the strings are examined one by one.
    pub(crate) fn redact_with_json(&self, value: Value) -> (Value, Box<RawValue>) {
        let (value, json) = with_json(value);
        if self.may_match(json.get()) { with_json(self.redact(value)) } else { (value, json) }
    }

    /// Returns whether a string in this JSON text may contain a secret. JSON escapes may hide one.
    fn may_match(&self, json: &str) -> bool {
        json.contains('\\')
            || self.matcher.as_ref().is_some_and(|matcher| matcher.is_match(json))
            || self.hub_secrets.as_ref().is_some_and(|secrets| secrets.searcher().may_match(json))
            || self
                .tokens
                .as_ref()
                .is_some_and(|tokens| lock(&tokens.0).iter().any(|redactor| redactor.may_match(json)))
    }

    /// Redacts the secrets in a JSON value in place, since most values contain nothing to redact.
    fn redact_value(&self, value: &mut Value, searcher: Option<&SecretSearcher>) {
        match value {
            Value::String(text) => {
                if let Some(masked) = self.redacted(text, searcher) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item, searcher)),
            Value::Object(members) => {
                if members.keys().any(|name| self.redacted(name, searcher).is_some()) {
                    let before = std::mem::take(members);
                    let renamed = before.into_iter().map(|(name, value)| {
                        let masked = self.redacted(&name, searcher);
                        (masked.unwrap_or(name), value)
                    });
                    *members = renamed.collect::<Map<_, _>>();
                }
                members.values_mut().for_each(|value| self.redact_value(value, searcher));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces the credentials in a text by `***`.
    pub(crate) fn redact_text(&self, text: String) -> String {
        self.redacted(&text, self.hub_secrets.as_ref().map(|secrets| secrets.searcher()).as_deref())
            .unwrap_or(text)
    }

    /// Returns the text with secrets redacted, or `None` if there is nothing to redact.
    fn redacted(&self, text: &str, searcher: Option<&SecretSearcher>) -> Option<String> {
        let mut masked = searcher.and_then(|searcher| searcher.mask(text));
        if let Some(matcher) = &self.matcher {
            let text = masked.as_deref().unwrap_or(text);
            if matcher.is_match(text) {
                masked = Some(mask_matches(matcher, text));
            }
        }
        let Some(tokens) = &self.tokens else { return masked };
        lock(&tokens.0).iter().fold(masked, |masked, redactor| {
            let again = redactor.redacted(masked.as_deref().unwrap_or(text), None);
            again.or(masked)
        })
    }
}

/// Returns the credentials in the URLs of a text, as written and percent-decoded: user and password, the password
/// alone, and a user that is long enough to be a token.
fn url_credentials(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for rest in text.split("://").skip(1) {
        let end = rest.find(|char: char| char.is_whitespace() || "/?#\"".contains(char));
        let Some((user_info, _)) = rest[..end.unwrap_or(rest.len())].rsplit_once('@') else { continue };
        let (user, password) =
            user_info.split_once(':').map_or((user_info, None), |(user, password)| (user, Some(password)));
        // Short texts, and passwords that are no secret, occur everywhere.
        let password =
            password.filter(|password| password.len() >= MIN_NAMED_SECRET_LEN && *password != user);
        let user = (user.len() >= MIN_URL_TOKEN_LEN).then_some(user);
        let user_and_password = password.map(|_| user_info);
        for secret in [user_and_password, password, user].into_iter().flatten() {
            found.push(Secret::new(secret));
            found.extend(percent_decode(secret).map(Secret::new));
        }
    }
    found
}

/// Replaces everything that the matcher finds in a text by `***`.
fn mask_matches(matcher: &AhoCorasick, text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    matcher.replace_all_with(text, &mut masked, |_, _, masked| {
        masked.push_str(MASK);
        true
    });
    masked
}

/// Decodes percent-encoded text. Returns `None` if there is nothing to decode.
fn percent_decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.extend(unhex(&digits.to_ascii_lowercase())?);
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).ok().filter(|decoded| decoded != text)
}

pub(crate) fn with_offset(secret: &[u8], begin: usize) -> Vec<u8> {
    std::iter::repeat_n(0, begin).chain(secret.iter().copied()).collect()
}

/// Returns the base64 digits of an encoded secret that do not depend on the text around it.
pub(crate) fn aligned_digits(encoded: &str, begin: usize, length: usize) -> String {
    let (first, last) = ((begin * 8).div_ceil(6), (begin + length) * 8 / 6);
    encoded.get(first..last).unwrap_or_default().to_owned()
}

fn percent_encode(text: &str, digits: fn(&str) -> String) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&digits(&hex(&[byte])));
        }
    }
    out
}

/// Escapes a text as in a JSON string.
fn json_escape(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::server::ProgramSpec;

    #[test]
    fn a_secret_is_hidden_in_every_form() {
        let secret = "canary \"a/b\"+é?~7f";
        let redactor = Redactor::new(&[Secret::new(secret)]);
        let mut forms = vec![
            secret.to_owned(),
            hex(secret.as_bytes()),
            hex(secret.as_bytes()).to_ascii_uppercase(),
            percent_encode(secret, str::to_ascii_uppercase),
            percent_encode(secret, str::to_owned),
            json!({ "inner": secret }).to_string(),
        ];
        for around in ["", "a", "ab", "abc", "user:"] {
            forms.push(STANDARD.encode(format!("{around}{secret}{around}")));
            forms.push(URL_SAFE_NO_PAD.encode(format!("{around}{secret}")));
        }
        for form in forms {
            let value = redactor.redact(json!({ "text": [format!("it is {form}.")], &form: 1 }));
            let text = value.to_string();
            assert!(text.contains(MASK) && !text.contains(&form), "{form}: {text}");
            assert_ne!(redactor.redact_text(form.clone()), form);
        }
        assert_eq!(redactor.redact(json!({"a": ["can", 1, null]})), json!({"a": ["can", 1, null]}));
    }

    #[test]
    fn what_is_secret_in_the_environment_of_a_program_is_hidden() {
        let hub_secrets = crate::secrets::hub_secrets::tests::secrets();
        let redact_env = |name: &str, value: &str, text: &str| {
            let env = [(name.to_owned(), value.to_owned())].into();
            let secrets = ["CONFIDED".to_owned()].into();
            let program = ProgramSpec { env, secrets, ..ProgramSpec::new("x", &[]) };
            let now = jiff::Timestamp::UNIX_EPOCH;
            let server = Server {
                id: crate::id::ServerId::from_u128(1),
                slug: crate::tool::names::Slug::new("x").unwrap(),
                settings: crate::server::ServerSettings::with_name("x"),
                transport: Transport::Stdio(program),
                is_configured: true,
                is_undeclared: false,
                version: 1,
                created: now,
                updated: now,
            };
            Redactor::for_server(&server, None, Some(&hub_secrets)).redact_text(text.to_owned())
        };
        assert_eq!(redact_env("GITHUB_PAT", "ghp_canary", "it is ghp_canary"), "it is ***");
        assert_eq!(redact_env("SENTRY_DSN", "https://a@b.example/1", "at https://a@b.example/1"), "at ***");
        assert_eq!(redact_env("NODE_ENV", "production", "in production"), "in production");
        assert_eq!(redact_env("CONFIDED", "short", "it is short"), "it is ***");
        let url = "postgres://ada:can%2fary@db.example:5432/x";
        assert_eq!(redact_env("DATABASE_URL", url, &format!("to {url}")), "to ***");
        for (text, expected) in [
            ("as ada:can%2fary there", "as *** there"),
            ("as ada with can%2fary or can%2Fary or can/ary", "as ada with *** or *** or ***"),
            ("to db.example:5432/x", "to db.example:5432/x"),
        ] {
            assert_eq!(redact_env("WHERE", url, text), expected);
            assert_eq!(redact_env("WHERE", &format!("a,{url}, redis://:other@b"), text), expected);
        }
        assert_eq!(
            redact_env("ALL", "redis://:the-first@a redis://:the-second@b", "the-first and the-second"),
            "*** and ***"
        );
        for plain in ["postgres://postgres:postgres@db", "mysql://ada:echo@db"] {
            assert_eq!(redact_env("WHERE", plain, "postgres_query, echo"), "postgres_query, echo");
        }
        let token = "a-token-of-twenty-signs";
        assert_eq!(
            redact_env("REPO", &format!("https://{token}@git.example/x"), &format!("with {token}")),
            "with ***"
        );
        assert_eq!(redact_env("REPO", "https://postgres@git.example/x", "postgres"), "postgres");
        assert_eq!(redact_env("NPM", "https://npm.example:4430/@scope/x", "4430 scope"), "4430 scope");
        for broken in ["://", "a://@", "a://:@b", "a://b:%@c", "a://b:%zz%é@c", "://é@"] {
            redact_env("BROKEN", broken, "fine");
        }
    }

    #[test]
    fn what_is_too_short_to_be_told_from_other_texts_stays() {
        let redactor = Redactor::new(&[Secret::new("a"), Secret::new("")]);
        assert_eq!(redactor.redact(json!("a banana")), json!("a banana"));
    }
}
