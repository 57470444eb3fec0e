//! What can go wrong, as those outside see it: a kind that programs know, a text that says what, where and what to do,
//! and the field it is about. Nothing secret is in it.

use std::fmt;
use std::time::Duration;

use crate::text::shortened;

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// What was given cannot be.
    Invalid,
    /// Nobody knows who asks.
    Unauthorized,
    /// There is no such thing, or not for whoever asks.
    NotFound,
    /// It contradicts what is there.
    Conflict,
    /// Whoever asks may not.
    Denied,
    /// Too much, or too often.
    Exhausted,
    /// What is needed for it does not work now.
    Unavailable,
    /// Something broke in here.
    Internal,
}

/// Something went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    kind: Kind,
    /// For programs: stable, such as `server_not_found`.
    code: &'static str,
    /// The field that it is about, as it is written in requests.
    field: Option<String>,
    message: String,
    retry_after: Option<Duration>,
}

/// What the hub's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a code that stays the same.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Error { kind, code, field: None, message: message.into(), retry_after: None }
    }

    /// What stands in a field cannot be.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Error { field: Some(field.into()), ..Self::new(Kind::Invalid, "invalid_field", message) }
    }

    /// The same, about what stands in a field.
    #[must_use]
    pub fn about(self, field: impl Into<String>) -> Self {
        Error { field: Some(field.into()), ..self }
    }

    /// The same, which may work after this time, in whole seconds.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Error { retry_after: Some(Duration::from_secs(seconds(wait))), ..self }
    }

    /// There is no such thing.
    pub fn not_found(what: &str, name: impl fmt::Display) -> Self {
        Self::new(Kind::NotFound, "not_found", format!("there is no {what} `{name}`"))
    }

    /// The hub is shutting down.
    pub(crate) fn ending() -> Self {
        Self::new(Kind::Unavailable, "ending", "the hub is ending: try again when it is back")
    }

    /// There is no such thing: only these are.
    pub(crate) fn not_one_of(what: &str, name: &str, known: &str) -> Self {
        let text = format!("there is no {what} `{}`: it is {known}", shortened(name));
        Self::new(Kind::NotFound, "not_found", text)
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The field that it is about.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// When it may work, if that is known: after so many seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What happened and what to do, without the field.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// How many seconds to wait so that this time has passed: at least one.
pub(crate) fn seconds(wait: Duration) -> u64 {
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
