//! Rejections of requests, with the `WWW-Authenticate` challenges that tell a client how to proceed.

use std::borrow::Cow;

use ::http::{HeaderValue, StatusCode};

use super::dpop::PROOF_ALGORITHMS;
use super::presented_token::Scheme;
use super::protected_resource::ProtectedResource;
use crate::jose::Algorithm;

/// Response to a request whose token is missing, invalid, without the needed scopes, or not verifiable at the moment:
/// status, text and `WWW-Authenticate` challenges.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: Cow<'static, str>,
    /// Values of the `WWW-Authenticate` headers of the response.
    pub(crate) challenges: Vec<HeaderValue>,
}

/// Error of a `WWW-Authenticate` challenge: scheme, code and description.
#[derive(Clone, Copy)]
struct ChallengeError<'a> {
    scheme: Scheme,
    code: &'static str,
    text: &'a str,
}

impl ProtectedResource {
    pub(super) fn no_token(&self) -> Rejection {
        Rejection {
            status: StatusCode::UNAUTHORIZED,
            text: "authentication required: send an access token".into(),
            challenges: self.challenges(&self.required_scopes, None),
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
        let challenges =
            self.challenges(&self.required_scopes, Some(ChallengeError { scheme, code, text: &text }));
        Rejection { status, text, challenges }
    }

    /// Creates the rejection of a valid token that lacks scopes; `scopes` are all scopes that the request needs.
    pub(super) fn insufficient_scope(&self, scheme: Scheme, scopes: &[String]) -> Rejection {
        let text = "the token lacks scopes that this request needs";
        let fault = ChallengeError { scheme, code: "insufficient_scope", text };
        let challenges = self.challenges(scopes, Some(fault));
        Rejection { status: StatusCode::FORBIDDEN, text: text.into(), challenges }
    }

    /// Creates the rejection for a token that cannot be verified at the moment: 503 without a challenge, so that the
    /// client retries with it.
    pub(super) fn unavailable() -> Rejection {
        Rejection {
            status: StatusCode::SERVICE_UNAVAILABLE,
            text: "tokens cannot be verified now: try again later".into(),
            challenges: Vec::new(),
        }
    }

    /// Returns one `WWW-Authenticate` challenge for each supported scheme. The error is in the challenge of the scheme
    /// that was used.
    fn challenges(&self, scopes: &[String], fault: Option<ChallengeError<'_>>) -> Vec<HeaderValue> {
        let schemes = self.schemes();
        let error_scheme = fault
            .map(|fault| fault.scheme)
            .filter(|error_scheme| schemes.contains(error_scheme))
            .unwrap_or(schemes[0]);
        let challenge = |scheme: &Scheme| {
            let fault = fault.filter(|_| *scheme == error_scheme);
            let algorithms =
                (*scheme == Scheme::Dpop).then(|| PROOF_ALGORITHMS.map(Algorithm::name).join(" "));
            let scopes = (!scopes.is_empty()).then(|| scopes.join(" "));
            let parameters = [
                ("algs", algorithms),
                ("resource_metadata", Some(self.metadata_url.clone())),
                ("scope", scopes),
                ("error", fault.map(|fault| fault.code.to_owned())),
                ("error_description", fault.map(|fault| fault.text.to_owned())),
            ];
            let formatted = parameters
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name}={}", quoted(&value?))));
            HeaderValue::from_str(&format!("{} {}", scheme.name(), formatted.collect::<Vec<_>>().join(", ")))
                .ok()
        };
        schemes.iter().filter_map(challenge).collect()
    }
}

/// Formats a value as a quoted string without the characters that are not allowed in one, so that it cannot break out
/// of the quotes.
fn quoted(value: &str) -> String {
    let plain = value.chars().filter(|char| matches!(char, ' ' | '!' | '#'..='[' | ']'..='~'));
    format!("\"{}\"", plain.collect::<String>())
}
