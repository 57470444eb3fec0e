//! Refusals, with all that a client needs to do better.

use std::borrow::Cow;

use ::http::{HeaderValue, StatusCode};

use super::credentials::Scheme;
use super::proof::ALGORITHMS;
use super::resource::Resource;
use crate::jose::Algorithm;

/// A request that is not let in.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: Cow<'static, str>,
    /// Values of `WWW-Authenticate`.
    pub(crate) challenges: Vec<HeaderValue>,
}

/// What a challenge says is wrong.
#[derive(Clone, Copy)]
struct Fault<'a> {
    scheme: Scheme,
    code: &'static str,
    text: &'a str,
}

impl Resource {
    pub(super) fn no_token(&self) -> Rejection {
        Rejection {
            status: StatusCode::UNAUTHORIZED,
            text: "this server must know who asks: send an access token".into(),
            challenges: self.challenges(&self.required, None),
        }
    }

    pub(super) fn invalid_request(&self, text: &'static str) -> Rejection {
        self.reject(StatusCode::BAD_REQUEST, Scheme::Bearer, "invalid_request", text)
    }

    pub(super) fn invalid_token(&self, scheme: Scheme, text: impl Into<Cow<'static, str>>) -> Rejection {
        self.reject(StatusCode::UNAUTHORIZED, scheme, "invalid_token", text)
    }

    pub(super) fn invalid_proof(&self, text: impl Into<Cow<'static, str>>) -> Rejection {
        self.reject(StatusCode::UNAUTHORIZED, Scheme::Dpop, "invalid_dpop_proof", text)
    }

    fn reject(
        &self,
        status: StatusCode,
        scheme: Scheme,
        code: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Rejection {
        let text = text.into();
        let challenges = self.challenges(&self.required, Some(Fault { scheme, code, text: &text }));
        Rejection { status, text, challenges }
    }

    /// The token is good, and not enough: `scopes` are all that this request needs.
    pub(super) fn insufficient(&self, scheme: Scheme, scopes: &[String]) -> Rejection {
        let text = "the token has not all scopes that this needs";
        let fault = Fault { scheme, code: "insufficient_scope", text };
        let challenges = self.challenges(scopes, Some(fault));
        Rejection { status: StatusCode::FORBIDDEN, text: text.into(), challenges }
    }

    /// Nobody can tell now whether the token is good: keeping it is better than asking for another one.
    pub(super) fn unavailable() -> Rejection {
        Rejection {
            status: StatusCode::SERVICE_UNAVAILABLE,
            text: "tokens cannot be checked now: try again later".into(),
            challenges: Vec::new(),
        }
    }

    /// One challenge for each way in which tokens may be sent. What is wrong stands in the one that was used.
    fn challenges(&self, scopes: &[String], fault: Option<Fault<'_>>) -> Vec<HeaderValue> {
        let schemes = self.schemes();
        let used =
            fault.map(|fault| fault.scheme).filter(|used| schemes.contains(used)).unwrap_or(schemes[0]);
        let challenge = |scheme: &Scheme| {
            let fault = fault.filter(|_| *scheme == used);
            let algorithms = (*scheme == Scheme::Dpop).then(|| ALGORITHMS.map(Algorithm::name).join(" "));
            let scopes = (!scopes.is_empty()).then(|| scopes.join(" "));
            let parameters = [
                ("algs", algorithms),
                ("resource_metadata", Some(self.metadata_url.clone())),
                ("scope", scopes),
                ("error", fault.map(|fault| fault.code.to_owned())),
                ("error_description", fault.map(|fault| fault.text.to_owned())),
            ];
            let said = parameters
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name}={}", quoted(&value?))));
            HeaderValue::from_str(&format!("{} {}", scheme.name(), said.collect::<Vec<_>>().join(", "))).ok()
        };
        schemes.iter().filter_map(challenge).collect()
    }
}

/// A value as a quoted string. What cannot stand in one is left out: whoever reads it must not be led astray.
fn quoted(value: &str) -> String {
    let plain = value.chars().filter(|char| matches!(char, ' ' | '!' | '#'..='[' | ']'..='~'));
    format!("\"{}\"", plain.collect::<String>())
}
