//! Errors of the authorization client, with texts for the user.

use std::fmt;

use crate::hidden_characters::is_hidden;
use crate::jose::JoseError;

/// Category of an [`AuthError`], such as missing metadata or a denied sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthErrorKind {
    /// The authorization settings of the client are invalid.
    Setup,
    /// Metadata of the server or the authorization server is missing, invalid or unsafe.
    Metadata,
    /// An endpoint did not respond, or the egress policy forbids it.
    Unreachable,
    /// The client is not registered at the authorization server and cannot register itself.
    Registration,
    /// A user must sign in, and no redirect handler can be used.
    SignInRequired,
    /// The redirect failed, or the user did not complete the sign-in.
    UserAbandoned,
    /// The user was redirected by a detached flow; the sign-in completes later.
    Redirected,
    /// The user or the authorization server denied access.
    Denied,
    /// The redirect back from the authorization server does not match the authorization request.
    Callback,
    /// No token was issued, or it cannot be used.
    Token,
    /// The server requires scopes that cannot be obtained.
    Scope,
    /// The token store could not be read or written.
    Store,
}

/// Error of the authorization of a client, such as a failed sign-in or token request. The text says what failed, where,
/// and what to do; it contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthError {
    kind: AuthErrorKind,
    message: String,
    /// The OAuth `error` code of the authorization server.
    code: Option<String>,
    /// Host of an unsafe URL that caused the error.
    denied_host: Option<String>,
}

impl AuthError {
    /// Creates an error, for implementations of [`super::RedirectHandler`] or [`super::TokenStore`].
    pub fn new(kind: AuthErrorKind, message: impl Into<String>) -> Self {
        AuthError { kind, message: message.into(), code: None, denied_host: None }
    }

    /// Marks the error as caused by an unsafe URL.
    pub(super) fn with_denied_host(self, url: &str) -> Self {
        AuthError { denied_host: Some(crate::egress::host_of(url)), ..self }
    }

    pub(super) fn denied_host(&self) -> Option<&str> {
        self.denied_host.as_deref()
    }

    pub(super) fn with_code(self, code: Option<String>) -> Self {
        AuthError { code, ..self }
    }

    /// Returns whether the authorization server permanently rejected a refresh token. Most servers use codes of their
    /// own besides `invalid_grant`. Errors about the client or the request say nothing about the grant.
    pub(super) fn ends_grant(&self) -> bool {
        let is_of_request =
            |code| matches!(code, "use_dpop_nonce" | "invalid_dpop_proof" | "unsupported_grant_type");
        !self.is_client_error() && self.code().is_some_and(|code| !is_of_request(code))
    }

    /// Returns whether the authorization server rejected the client.
    pub(super) fn is_client_error(&self) -> bool {
        matches!(self.code(), Some("invalid_client" | "unauthorized_client"))
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> AuthErrorKind {
        self.kind
    }

    /// Returns the OAuth `error` code of the authorization server, such as `invalid_grant`; `None` for transient
    /// errors.
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

/// Keys come from the configuration, so their errors are setup errors.
impl From<JoseError> for AuthError {
    fn from(error: JoseError) -> Self {
        AuthError::new(AuthErrorKind::Setup, error.to_string())
    }
}

/// Returns line and column of a JSON parse error. The text around it is untrusted or secret and is not shown.
pub(super) fn error_position(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// Sanitizes an untrusted text for a message: one line, no control characters, at most 200 characters.
pub(super) fn sanitize(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let visible = |char: &char| !char.is_control() && !is_hidden(*char);
    let mut short: String = text.trim().chars().filter(visible).take(MAX_CHARS + 1).collect();
    if let Some((end, _)) = short.char_indices().nth(MAX_CHARS) {
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
        let ends_grant =
            |code: &str| AuthError::new(AuthErrorKind::Token, "x").with_code(Some(code.into())).ends_grant();
        assert!(
            ends_grant("invalid_grant")
                && ends_grant("bad_refresh_token")
                && ends_grant("interaction_required")
        );
        assert!(!ends_grant("invalid_client") && !ends_grant("unauthorized_client"));
        assert!(!ends_grant("use_dpop_nonce") && !AuthError::new(AuthErrorKind::Token, "x").ends_grant());
    }

    #[test]
    fn foreign_texts_are_tamed() {
        assert_eq!(sanitize(" no\r\n\u{1b}[31mway\u{202e} "), "no[31mway");
        assert_eq!(sanitize("a\u{200b}\u{3164}\u{fff9}\u{e0041}b"), "ab");
        assert_eq!(sanitize(&"ä".repeat(200)), "ä".repeat(200));
        assert_eq!(sanitize(&"ä".repeat(999)), format!("{}…", "ä".repeat(200)));
    }
}
