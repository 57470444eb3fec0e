//! Why signing in failed, in words for the person who wanted it.

use std::fmt;

use crate::jose::JoseError;
use crate::text::is_hidden;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthErrorKind {
    /// The settings cannot work.
    Setup,
    /// What the server or its authorization server says of itself is missing, wrong or not safe to use.
    Metadata,
    /// A place that must be asked did not answer, or may not be asked.
    Unreachable,
    /// The authorization server did not register the client, and no other way to be known to it is left.
    Registration,
    /// Somebody has to sign in, and nobody can be asked.
    Nobody,
    /// Whoever was asked to sign in could not be reached, or did not come back.
    Person,
    /// Somebody is on their way to sign in, and nobody waits for them here.
    Away,
    /// The person or the authorization server said no.
    Denied,
    /// What came back from the browser does not belong to what was asked.
    Callback,
    /// No token was given, or one that cannot be used.
    Token,
    /// The server wants more than can be had.
    Scope,
    /// What is kept could not be read or written.
    Store,
}

/// Signing in failed. The text says what, where and what to do; nothing secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthError {
    kind: AuthErrorKind,
    message: String,
    /// The `error` of OAuth that the authorization server gave.
    code: Option<String>,
    /// The host of a place that nobody goes to, if that is why.
    denied: Option<String>,
}

impl AuthError {
    /// A failure, for those who implement [`super::Person`] or [`super::TokenStore`].
    pub fn new(kind: AuthErrorKind, message: impl Into<String>) -> Self {
        AuthError { kind, message: message.into(), code: None, denied: None }
    }

    /// It failed because this URL is no safe place.
    pub(super) fn of_unsafe(self, url: &str) -> Self {
        AuthError { denied: Some(crate::egress::host_of(url)), ..self }
    }

    pub(super) fn denied(&self) -> Option<&str> {
        self.denied.as_deref()
    }

    pub(super) fn with_code(self, code: Option<String>) -> Self {
        AuthError { code, ..self }
    }

    /// Whether the authorization server said no to a refresh token in a way that will not pass: most have codes of their
    /// own beside `invalid_grant`. What is wrong with whoever shows it says nothing of what was granted.
    pub(super) fn ends_grant(&self) -> bool {
        let is_of_request =
            |code| matches!(code, "use_dpop_nonce" | "invalid_dpop_proof" | "unsupported_grant_type");
        !self.is_of_client() && self.code().is_some_and(|code| !is_of_request(code))
    }

    /// Whether the authorization server does not take the client.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(self.code(), Some("invalid_client" | "unauthorized_client"))
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> AuthErrorKind {
        self.kind
    }

    /// The `error` of OAuth that the authorization server gave, such as `invalid_grant`; not if it may pass.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AuthError {}

/// The keys are the host's own.
impl From<JoseError> for AuthError {
    fn from(error: JoseError) -> Self {
        AuthError::new(AuthErrorKind::Setup, error.to_string())
    }
}

/// Where a document cannot be read. What stands there is not ours to show.
pub(super) fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// A text of somebody else as a part of ours: on one line, without anything that a terminal would obey, and short.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 200;
    let visible = |char: &char| !char.is_control() && !is_hidden(*char);
    let mut short: String = text.trim().chars().filter(visible).take(MOST + 1).collect();
    if let Some((end, _)) = short.char_indices().nth(MOST) {
        short.truncate(end);
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_over_is_over() {
        let of =
            |code: &str| AuthError::new(AuthErrorKind::Token, "x").with_code(Some(code.into())).ends_grant();
        assert!(of("invalid_grant") && of("bad_refresh_token") && of("interaction_required"));
        assert!(!of("invalid_client") && !of("unauthorized_client"));
        assert!(!of("use_dpop_nonce") && !AuthError::new(AuthErrorKind::Token, "x").ends_grant());
    }

    #[test]
    fn foreign_texts_are_tamed() {
        assert_eq!(quoted(" no\r\n\u{1b}[31mway\u{202e} "), "no[31mway");
        assert_eq!(quoted("a\u{200b}\u{3164}\u{fff9}\u{e0041}b"), "ab");
        assert_eq!(quoted(&"ä".repeat(200)), "ä".repeat(200));
        assert_eq!(quoted(&"ä".repeat(999)), format!("{}…", "ä".repeat(200)));
    }
}
