//! Exporter settings from the standard `OTEL_*` environment variables.

use http::{HeaderMap, HeaderName, HeaderValue};
use linchpin::egress::Target;

use crate::config::Variables;
use crate::error::CliError;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";

/// Settings of the OpenTelemetry exporter: collector URL, request headers and service name.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) target: Target,
    pub(super) headers: HeaderMap,
    pub(super) service: String,
}

/// Returns whether the export of `tracing` spans is configured.
pub(super) fn is_enabled(variables: Variables<'_>) -> bool {
    let is_disabled = variables(DISABLED_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    !is_disabled && variables(ENDPOINT).is_some()
}

impl Settings {
    pub(super) fn read(variables: Variables<'_>) -> Result<Self, CliError> {
        let text = |name: &str| {
            let unreadable = |_| CliError::usage(format!("{name} must be UTF-8"));
            variables(name).map(|value| value.into_string().map_err(unreadable)).transpose()
        };
        let endpoint = text(ENDPOINT)?.unwrap_or_default();
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let target = Target::configured(&url).map_err(|error| {
            CliError::usage(format!(
                "{ENDPOINT} must be the URL of a collector, such as `http://127.0.0.1:4318`: {error}"
            ))
        })?;
        let headers = headers(&text(HEADERS)?.unwrap_or_default()).ok_or_else(|| {
            // The error omits the value, since headers may be secret.
            CliError::usage(format!("{HEADERS} must have the form `name=value,name=value`"))
        })?;
        Ok(Settings { target, headers, service: text(SERVICE)?.unwrap_or_else(|| "linchpin".to_owned()) })
    }
}

fn headers(text: &str) -> Option<HeaderMap> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let mut value = HeaderValue::from_str(percent_decode(value.trim())?.trim()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse::<HeaderName>().ok()?, value))
    };
    pairs.map(pair).collect()
}

/// Decodes a percent-encoded value of the OpenTelemetry settings.
fn percent_decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let (digits, after) = after.split_at_checked(2)?;
        // `from_str_radix` would also accept a sign.
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn variables<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
    }

    #[test]
    fn spans_are_sent_only_where_somebody_says_where_to() {
        assert!(!is_enabled(&variables(&[])));
        assert!(is_enabled(&variables(&[(ENDPOINT, "http://127.0.0.1:4318")])));
        assert!(!is_enabled(&variables(&[(ENDPOINT, "http://127.0.0.1:4318"), (DISABLED_VARIABLE, "TRUE")])));
    }

    #[test]
    fn what_is_wrong_is_said_without_what_is_secret() {
        let set =
            [(ENDPOINT, "https://a.example/x/"), (HEADERS, " x-key = a%20b , y=c=d"), (SERVICE, "mine")];
        let read = Settings::read(&variables(&set)).unwrap();
        assert_eq!((read.target.url(), &*read.service), ("https://a.example/x/v1/traces".to_owned(), "mine"));
        assert_eq!(
            (&read.headers["x-key"], &read.headers["y"]),
            (&"a b".parse().unwrap(), &"c=d".parse().unwrap())
        );
        assert!(!format!("{read:?}").contains("a b"));
        for (endpoint, headers, expected) in [
            ("collector:4318", "", ENDPOINT),
            ("http://127.0.0.1:1", "canary", HEADERS),
            ("http://127.0.0.1:1", "a=%canary", HEADERS),
            ("http://127.0.0.1:1", "a=%+1canary", HEADERS),
            ("http://127.0.0.1:1", "a b=canary", HEADERS),
        ] {
            let error = Settings::read(&variables(&[(ENDPOINT, endpoint), (HEADERS, headers)])).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
