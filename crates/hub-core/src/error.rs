//! Error of hub operations as callers see it: a kind, a stable code, a message with the reason and the remedy, and the
//! field. Errors contain no secrets.

use std::fmt;
use std::time::Duration;

use linchpin::ErrorObject;

use crate::text::shorten;

/// Kind of a hub error, which determines the HTTP status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid.
    Invalid,
    /// The caller is not authenticated.
    Unauthenticated,
    /// The object does not exist, or the caller may not see it.
    NotFound,
    /// The request conflicts with the current state.
    Conflict,
    /// The caller lacks permission.
    PermissionDenied,
    /// A size, rate or concurrency limit is exceeded.
    LimitExceeded,
    /// A dependency, such as the store or a server, is unavailable.
    Unavailable,
    /// Internal error.
    Internal,
}

/// Error of a hub operation: kind, stable code, message, and the field that caused it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    /// Stable error code for programs, such as `server_not_found`.
    code: &'static str,
    /// Request field that caused the error.
    field: Option<String>,
    message: String,
    retry_after: Option<Duration>,
    /// JSON-RPC error with which a server rejected the request, with secrets redacted.
    rejection: Option<Box<ErrorObject>>,
}

/// Result of a hub operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error with a stable code.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Error { kind, code, field: None, message: message.into(), retry_after: None, rejection: None }
    }

    /// Creates an error about an invalid field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Error { field: Some(field.into()), ..Self::new(ErrorKind::Invalid, "invalid_field", message) }
    }

    /// Sets the field of the input that caused the error.
    #[must_use]
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Error { field: Some(field.into()), ..self }
    }

    /// Sets the JSON-RPC error with which a server rejected the request.
    #[must_use]
    pub(crate) fn with_rejection(self, rejection: Option<ErrorObject>) -> Self {
        Error { rejection: rejection.map(Box::new), ..self }
    }

    /// Sets the time after which a retry may succeed, rounded up to seconds.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Error { retry_after: Some(Duration::from_secs(ceil_seconds(wait))), ..self }
    }

    /// Creates the error for an object that does not exist.
    pub fn not_found(noun: &str, name: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, "not_found", format!("there is no {noun} `{name}`"))
    }

    /// Creates the error of a hub that shuts down.
    pub(crate) fn shutting_down() -> Self {
        Self::new(
            ErrorKind::Unavailable,
            "shutting_down",
            "the hub is shutting down: retry after it has restarted",
        )
    }

    /// Creates the error for an unknown value, with the known ones.
    pub(crate) fn unknown_value(noun: &str, name: &str, advice: &str) -> Self {
        let text = format!("unknown {noun} `{}`: {advice}", shorten(name));
        Self::new(ErrorKind::NotFound, "not_found", text)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the machine-readable code of the error.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the field that caused the error.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Returns the JSON-RPC error with which a server rejected the request, with secrets redacted.
    pub fn rejection(&self) -> Option<&ErrorObject> {
        self.rejection.as_deref()
    }

    /// Returns the time after which a retry may succeed, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the error message without the name of the field.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Rounds a duration up to seconds: at least one.
pub(crate) fn ceil_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
