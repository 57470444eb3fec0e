//! Planted secrets, and the search for them in every encoding.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use linchpin_hub_core::platform::{SystemPlatform, random};
use serde_json::Value;

/// Planted secret, named after its location.
pub(crate) struct Canary {
    pub(crate) name: &'static str,
    pub(crate) secret: String,
}

/// Searched output: its source, its text, and the secrets that it may contain.
pub(crate) struct Sink {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) may: Vec<&'static str>,
}

/// Creates a random secret that differs in each encoding.
pub(crate) fn fresh() -> String {
    format!("Kea\"/+{}~?=", hex(&random::<12>(&SystemPlatform)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Canary {
    pub(crate) fn new(name: &'static str, secret: impl Into<String>) -> Self {
        Canary { name, secret: secret.into() }
    }

    /// Returns whether a text contains the secret: plain, JSON-escaped once or twice, percent-encoded, hexadecimal, or
    /// base64 at any alignment.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.forms().iter().any(|form| text.contains(form))
    }

    fn forms(&self) -> Vec<String> {
        let (secret, digits) = (&self.secret, hex(self.secret.as_bytes()));
        let escaped = |text: &str| Value::from(text).to_string().trim_matches('"').to_owned();
        let percent = secret.bytes().fold(String::new(), |text, byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => {
                text + &char::from(byte).to_string()
            }
            _ => text + &format!("%{byte:02X}"),
        });
        let once = escaped(secret);
        let mut forms = vec![secret.clone(), digits.to_uppercase(), digits, percent, escaped(&once), once];
        // The random parts alone count as a leak.
        forms.extend(
            secret
                .split(|char: char| !char.is_ascii_alphanumeric())
                .filter(|part| part.len() >= 16)
                .map(str::to_owned),
        );
        for begin in 0..3 {
            let shifted: Vec<u8> = std::iter::repeat_n(0, begin).chain(secret.bytes()).collect();
            let (first, last) = ((begin * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.extend(
                [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)]
                    .map(|text| text[first..last].to_owned()),
            );
        }
        forms
    }
}

#[test]
fn a_canary_is_found_in_every_form() {
    let canary = Canary::new("one", fresh());
    let secret = &canary.secret;
    for around in ["", "a", "bc"] {
        let text = format!("{around}{secret}{around}");
        let value = Value::from(text.as_str()).to_string();
        for form in [
            STANDARD_NO_PAD.encode(&text),
            URL_SAFE_NO_PAD.encode(&text),
            hex(text.as_bytes()),
            Value::from(value.as_str()).to_string(),
            value,
            text,
        ] {
            assert!(canary.is_in(&form), "{form}");
        }
    }
    assert!(!canary.is_in(&fresh()) && !Canary::new("other", fresh()).is_in(secret));
}
