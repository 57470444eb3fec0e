//! Error of a command: message for standard error, JSON form for `--json`, and exit code.

use std::fmt;
use std::io;

use linchpin::{CallError, ClientError};
use serde_json::{Value, json};

use crate::config::Problem;

/// Error kind; the field `kind` of the JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The arguments are invalid.
    Usage,
    /// The server could not be started.
    Start,
    /// The connection was closed or lost.
    Connection,
    /// The response did not arrive in time.
    Timeout,
    /// The server rejected the request, or violated the protocol.
    Protocol,
    /// The server has no such tool.
    UnknownTool,
    /// The hub rejected the request.
    Hub,
    /// Writing to the disk failed.
    Disk,
    /// Interrupted by this signal.
    Interrupted(u8),
    /// The reader of standard output closed the pipe.
    BrokenPipe,
    Other,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    message: String,
    /// JSON-RPC error code and data returned by the server.
    answer: Option<Box<(i64, Option<Value>)>>,
    /// HTTP status of the response, and the code of the transport error.
    status: Option<u16>,
    name: Option<&'static str>,
    /// Code and field of the hub's problem document.
    problem: Option<Box<(Option<String>, Option<String>)>>,
    /// Last lines that the server wrote to standard error.
    words: Vec<String>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Failure { kind, message, answer: None, status: None, name: None, problem: None, words: Vec::new() }
    }

    /// Creates the error for a problem document of the hub.
    pub(crate) fn hub(message: String, status: u16, code: Option<String>, field: Option<String>) -> Self {
        Failure {
            status: Some(status),
            problem: Some(Box::new((code, field))),
            ..Self::new(Kind::Hub, message)
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Prefixes the message with the failed operation.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds the last lines of the server's standard error, if they can explain the error and the message does not
    /// contain them yet.
    pub(crate) fn with_words(mut self, words: Vec<String>) -> Self {
        let explains = matches!(self.kind, Kind::Connection | Kind::Timeout | Kind::Protocol);
        if explains && words.last().is_some_and(|last| !self.message.contains(last)) {
            self.words = words;
        }
        self
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.status
    }

    /// Whether the hub returned this error code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.problem.as_deref().is_some_and(|(known, _)| known.as_deref() == Some(code))
    }

    /// Whether the hub rejected this field.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.problem.as_deref().is_some_and(|(_, known)| known.as_deref() == Some(field))
    }

    /// Whether the server requires a sign-in, or the sign-in failed.
    pub(crate) fn is_about_signing_in(&self) -> bool {
        self.needs_person() || self.name == Some("HTTP_AUTHORIZATION")
    }

    /// Whether only a user can continue, by signing in.
    pub(crate) fn needs_person(&self) -> bool {
        self.name == Some("HTTP_SIGN_IN")
    }

    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::BrokenPipe => 0,
            Kind::Usage => 2,
            Kind::Disk => 74, // `EX_IOERR` of `sysexits.h`
            Kind::Interrupted(signal) => 128 + signal,
            _ => 1,
        }
    }

    /// Returns the JSON form.
    pub(crate) fn to_json(&self) -> Value {
        let kind = match self.kind {
            Kind::Usage => "usage",
            Kind::Start => "start",
            Kind::Connection => "connection",
            Kind::Timeout => "timeout",
            Kind::Protocol => "protocol",
            Kind::UnknownTool => "unknown_tool",
            Kind::Hub => "hub",
            Kind::Disk => "disk",
            Kind::Interrupted(_) => "interrupted",
            Kind::BrokenPipe | Kind::Other => "other",
        };
        let mut error = json!({ "kind": kind, "message": self.message });
        if let Some((code, data)) = self.answer.as_deref() {
            error["code"] = json!(code);
            error["data"] = json!(data);
        }
        if let Some(status) = self.status {
            error["status"] = json!(status);
        }
        if let Some((code, field)) = self.problem.as_deref() {
            error["code"] = json!(code);
            error["field"] = json!(field);
        }
        if !self.words.is_empty() {
            error["stderr"] = json!(self.words);
        }
        json!({ "error": error })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.words.is_empty() {
            write!(f, "\nlast lines of the server's standard error:")?;
        }
        self.words.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::Open { .. } => Kind::Start,
            ClientError::Call(CallError::TimedOut(_)) => Kind::Timeout,
            ClientError::Call(CallError::Closed(_) | CallError::Lost(_))
            | ClientError::OutcomeUnknown { .. } => Kind::Connection,
            _ => Kind::Protocol,
        };
        let message = crate::terminal::clean(&error.to_string());
        let (status, name) = match &error {
            ClientError::Call(CallError::Transport { status, code, .. }) => (*status, Some(*code)),
            _ => (None, None),
        };
        let answer = match error {
            ClientError::Call(CallError::Rejected(error)) => Some(Box::new((error.code, error.data))),
            _ => None,
        };
        let mut failure = Failure { answer, status, name, ..Failure::new(kind, message) };
        if failure.needs_person() {
            failure.message.push_str("\nadd --sign-in to sign in now");
        }
        failure
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Failure::new(if is_pipe { Kind::BrokenPipe } else { Kind::Other }, error.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure::new(Kind::Other, problem.to_string())
    }
}

impl From<linchpin_hub_core::Error> for Failure {
    fn from(error: linchpin_hub_core::Error) -> Self {
        Failure::new(Kind::Other, error.to_string())
    }
}

impl From<linchpin_hub_core::vault::KeyFileError> for Failure {
    fn from(error: linchpin_hub_core::vault::KeyFileError) -> Self {
        Failure::new(Kind::Other, error.to_string())
    }
}

impl From<linchpin_hub_core::audit::Broken> for Failure {
    fn from(broken: linchpin_hub_core::audit::Broken) -> Self {
        Failure::new(Kind::Other, broken.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let pipe =
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        Failure::new(if pipe { Kind::BrokenPipe } else { Kind::Other }, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_not_said_twice() {
        let failure = || Failure::new(Kind::Connection, "the server exited: one\ntwo");
        assert!(!failure().with_words(vec!["one".into(), "two".into()]).to_string().contains("| two"));
        let shown = Failure::new(Kind::Timeout, "no response").with_words(vec!["one".into(), "two".into()]);
        assert_eq!(
            shown.to_string(),
            "no response\nlast lines of the server's standard error:\n  | one\n  | two"
        );
        assert_eq!(shown.to_json()["error"]["stderr"], json!(["one", "two"]));
    }
}
