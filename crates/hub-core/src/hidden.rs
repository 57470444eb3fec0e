//! What must not come back: the secrets that went out with a call, in whatever form a server repeats them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use linchpin::auth::Secret;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::server::{Authentication, Server, Transport};
use crate::text::hex;

/// Shorter ones occur everywhere.
const SHORTEST: usize = 4;
/// The same for what only looks like a secret by its name.
const SHORTEST_NAMED: usize = 8;
/// What the name of a variable has in it whose value nobody should see.
const SECRET_NAMES: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "PRIVATE"];
const MASK: &str = "***";

/// Texts that are written as `***`.
#[derive(Default)]
pub(crate) struct Hidden(Vec<Zeroizing<String>>);

impl Hidden {
    /// What a server gets from us and nobody else should see: the credential, and what is secret in its environment.
    pub(crate) fn of(server: &Server, credential: Option<&Secret>) -> Self {
        let mut secrets = Vec::new();
        if let Transport::Stdio(launch) = &server.transport {
            let is_secret =
                |name: &str| SECRET_NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
            let values =
                launch.env.iter().filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST_NAMED);
            secrets.extend(values.map(|(_, value)| Secret::new(value.as_str())));
        }
        if let Some(credential) = credential {
            if let Authentication::Basic { username } = &server.settings.authentication {
                secrets.push(Secret::new(format!("{username}:{}", credential.expose())));
            }
            secrets.push(credential.clone());
        }
        Self::new(&secrets)
    }

    fn new(secrets: &[Secret]) -> Self {
        let mut forms = Vec::new();
        for secret in secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= SHORTEST) {
            let digits = hex(secret.as_bytes());
            forms.extend([
                secret.to_owned(),
                digits.to_ascii_uppercase(),
                digits,
                percent(secret),
                escaped(secret),
            ]);
            // Within a longer text that is written so, at any of the three places where it can begin.
            for begin in 0..3 {
                forms.extend([
                    core(&STANDARD_NO_PAD.encode(shifted(secret, begin)), begin, secret.len()),
                    core(&URL_SAFE_NO_PAD.encode(shifted(secret, begin)), begin, secret.len()),
                ]);
            }
        }
        forms.retain(|form| form.len() >= SHORTEST);
        forms.sort_unstable_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Hidden(forms.into_iter().map(Zeroizing::new).collect())
    }

    /// A value in which none of them is seen, in names or in texts.
    pub(crate) fn hide(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.hide_in(text)),
            Value::Array(items) => items.into_iter().map(|item| self.hide(item)).collect(),
            Value::Object(members) => {
                let hidden = members.into_iter().map(|(name, value)| (self.hide_in(name), self.hide(value)));
                Value::Object(hidden.collect::<Map<_, _>>())
            }
            plain => plain,
        }
    }

    /// A text in which none of them is seen.
    pub(crate) fn hide_in(&self, mut text: String) -> String {
        for form in &self.0 {
            if text.contains(form.as_str()) {
                text = text.replace(form.as_str(), MASK);
            }
        }
        text
    }
}

fn shifted(secret: &str, begin: usize) -> Vec<u8> {
    std::iter::repeat_n(0, begin).chain(secret.bytes()).collect()
}

/// The digits that depend on the secret alone, and not on what stands around it.
fn core(encoded: &str, begin: usize, length: usize) -> String {
    let (first, last) = ((begin * 8).div_ceil(6), (begin + length) * 8 / 6);
    encoded.get(first..last).unwrap_or_default().to_owned()
}

fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&hex(&[byte]).to_ascii_uppercase());
        }
    }
    out
}

/// As it stands in JSON that is itself a text.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_hidden_in_every_form() {
        let secret = "canary \"a/b\"+é?~7f";
        let hidden = Hidden::new(&[Secret::new(secret)]);
        let mut forms = vec![
            secret.to_owned(),
            hex(secret.as_bytes()),
            hex(secret.as_bytes()).to_ascii_uppercase(),
            percent(secret),
            json!({ "inner": secret }).to_string(),
        ];
        for around in ["", "a", "ab", "abc", "user:"] {
            forms.push(STANDARD.encode(format!("{around}{secret}{around}")));
            forms.push(URL_SAFE_NO_PAD.encode(format!("{around}{secret}")));
        }
        for form in forms {
            let value = hidden.hide(json!({ "text": [format!("it is {form}.")], &form: 1 }));
            let text = value.to_string();
            assert!(text.contains(MASK) && !text.contains(&form), "{form}: {text}");
            assert_ne!(hidden.hide_in(form.clone()), form);
        }
        assert_eq!(hidden.hide(json!({"a": ["can", 1, null]})), json!({"a": ["can", 1, null]}));
    }

    #[test]
    fn what_is_too_short_to_be_told_from_other_texts_stays() {
        let hidden = Hidden::new(&[Secret::new("a"), Secret::new("")]);
        assert_eq!(hidden.hide(json!("a banana")), json!("a banana"));
    }
}
