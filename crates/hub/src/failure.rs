//! Why the program fails: for people on standard error, for programs as an object, and as an exit code.

use std::fmt;
use std::io;

use linchpin::{CallError, ClientError};
use serde_json::{Value, json};

use crate::config::Problem;

/// The kinds of failure, as programs see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was typed makes no sense.
    Usage,
    /// The server could not be started.
    Start,
    /// The connection ended.
    Connection,
    /// An answer did not come in time.
    Timeout,
    /// The server refused, or does not speak the protocol.
    Protocol,
    /// The server has no such tool.
    UnknownTool,
    /// The hub refused.
    Hub,
    /// The disk does not keep what it is given.
    Disk,
    /// The user, or the system, wants an end; by this signal.
    Interrupted(u8),
    /// Whoever read the output has seen enough.
    BrokenPipe,
    Other,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    message: String,
    /// Code and data of the server's answer.
    answer: Option<Box<(i64, Option<Value>)>>,
    /// The HTTP status of its answer, and the name of what failed on the way.
    status: Option<u16>,
    name: Option<&'static str>,
    /// The code of the hub's answer, and the field that it is about.
    problem: Option<Box<(Option<String>, Option<String>)>>,
    /// What the server wrote on its standard error at last.
    words: Vec<String>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Failure { kind, message, answer: None, status: None, name: None, problem: None, words: Vec::new() }
    }

    /// What the hub said instead of doing it.
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

    /// Says what could not be done.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds what the server said, unless the message repeats it already or it explains nothing.
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

    /// Whether the hub refused with this code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.problem.as_deref().is_some_and(|(known, _)| known.as_deref() == Some(code))
    }

    /// Whether the hub refused this field.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.problem.as_deref().is_some_and(|(_, known)| known.as_deref() == Some(field))
    }

    /// Whether signing in failed.
    pub(crate) fn is_about_signing_in(&self) -> bool {
        self.needs_person() || self.name == Some("HTTP_AUTHORIZATION")
    }

    /// Whether nothing is missing but a person.
    pub(crate) fn needs_person(&self) -> bool {
        self.name == Some("HTTP_SIGN_IN")
    }

    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::BrokenPipe => 0,
            Kind::Usage => 2,
            Kind::Disk => 74, // as `sysexits.h` has it
            Kind::Interrupted(signal) => 128 + signal,
            _ => 1,
        }
    }

    /// For programs.
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
            write!(f, "\nthe server's last words:")?;
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
            failure.message.push_str("\nto be asked here, give --sign-in");
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
        let failure = || Failure::new(Kind::Connection, "the server exited; its last words: one\ntwo");
        assert!(!failure().with_words(vec!["one".into(), "two".into()]).to_string().contains("| two"));
        let shown = Failure::new(Kind::Timeout, "no answer").with_words(vec!["one".into(), "two".into()]);
        assert_eq!(shown.to_string(), "no answer\nthe server's last words:\n  | one\n  | two");
        assert_eq!(shown.to_json()["error"]["stderr"], json!(["one", "two"]));
    }
}
