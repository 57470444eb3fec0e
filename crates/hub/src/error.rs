//! Error of a command: message for standard error, JSON form for `--json`, and exit code.

use std::fmt;
use std::io;

use linchpin::{CallError, ClientError};
use serde_json::{Value, json};

use crate::config::ConfigError;

/// Kind of a command's error, in the field `kind` of its JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CliErrorKind {
    /// The command-line arguments are invalid.
    Usage,
    /// The server could not be started.
    Start,
    /// No hub is running or reachable, or the connection to the hub or server was lost.
    Connection,
    /// The response did not arrive in time.
    Timeout,
    /// The server rejected the request, or violated the protocol.
    Protocol,
    /// The server has no such tool.
    UnknownTool,
    /// The hub rejected the request.
    Hub,
    /// Another hub is running on the data directory.
    HubRunning,
    /// Writing to the disk failed.
    Disk,
    /// The command was interrupted by this signal.
    Interrupted(u8),
    /// The reader of standard output closed the pipe.
    BrokenPipe,
    Other,
}

#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) kind: CliErrorKind,
    message: String,
    /// JSON-RPC error code and data returned by the server.
    rpc_error: Option<Box<(i64, Option<Value>)>>,
    /// HTTP status of the response that caused the error.
    status: Option<u16>,
    transport_code: Option<&'static str>,
    /// Code and field of the problem document that the hub responded with.
    problem: Option<Box<(Option<String>, Option<String>)>>,
    /// Last lines that the server wrote to standard error.
    stderr_tail: Vec<String>,
}

impl CliError {
    pub(crate) fn new(kind: CliErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        CliError {
            kind,
            message,
            rpc_error: None,
            status: None,
            transport_code: None,
            problem: None,
            stderr_tail: Vec::new(),
        }
    }

    /// Creates the error for a problem document of the hub.
    pub(crate) fn from_problem(
        message: String,
        status: u16,
        code: Option<String>,
        field: Option<String>,
    ) -> Self {
        CliError {
            status: Some(status),
            problem: Some(Box::new((code, field))),
            ..Self::new(CliErrorKind::Hub, message)
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Usage, message)
    }

    /// Prefixes the error message with the failed operation.
    pub(crate) fn context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Adds the last lines of the server's standard error, if they can explain the error and the message does not
    /// contain them yet.
    pub(crate) fn with_stderr(mut self, stderr_lines: Vec<String>) -> Self {
        let explains =
            matches!(self.kind, CliErrorKind::Connection | CliErrorKind::Timeout | CliErrorKind::Protocol);
        if explains && stderr_lines.last().is_some_and(|last| !self.message.contains(last)) {
            self.stderr_tail = stderr_lines;
        }
        self
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns whether the hub responded with this error code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.problem.as_deref().is_some_and(|(problem_code, _)| problem_code.as_deref() == Some(code))
    }

    /// Returns whether the hub rejected this field of the request.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.problem.as_deref().is_some_and(|(_, problem_field)| problem_field.as_deref() == Some(field))
    }

    /// Returns whether the server requires a sign-in, or the sign-in failed.
    pub(crate) fn is_auth_error(&self) -> bool {
        self.needs_sign_in() || self.transport_code == Some("HTTP_AUTHORIZATION")
    }

    /// Returns whether only a user can continue, by signing in.
    pub(crate) fn needs_sign_in(&self) -> bool {
        self.transport_code == Some("HTTP_SIGN_IN")
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind {
            CliErrorKind::BrokenPipe => 0,
            CliErrorKind::Usage => 2,
            CliErrorKind::Disk => 74, // `EX_IOERR` of `sysexits.h`
            CliErrorKind::Interrupted(signal) => 128 + signal,
            _ => 1,
        }
    }

    /// Returns the error as JSON for `--json`: kind, message and details.
    pub(crate) fn to_json(&self) -> Value {
        let kind = match self.kind {
            CliErrorKind::Usage => "usage",
            CliErrorKind::Start => "start",
            CliErrorKind::Connection => "connection",
            CliErrorKind::Timeout => "timeout",
            CliErrorKind::Protocol => "protocol",
            CliErrorKind::UnknownTool => "unknown_tool",
            CliErrorKind::Hub => "hub",
            CliErrorKind::Disk => "disk",
            CliErrorKind::Interrupted(_) => "interrupted",
            CliErrorKind::HubRunning | CliErrorKind::BrokenPipe | CliErrorKind::Other => "other",
        };
        let mut error = json!({ "kind": kind, "message": self.message });
        if let Some((code, data)) = self.rpc_error.as_deref() {
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
        if !self.stderr_tail.is_empty() {
            error["stderr"] = json!(self.stderr_tail);
        }
        json!({ "error": error })
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.stderr_tail.is_empty() {
            write!(f, "\nlast lines of the server's standard error:")?;
        }
        self.stderr_tail.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::Open { .. } => CliErrorKind::Start,
            ClientError::Call(CallError::TimedOut(_)) => CliErrorKind::Timeout,
            ClientError::Call(CallError::Closed(_) | CallError::Lost(_))
            | ClientError::OutcomeUnknown { .. } => CliErrorKind::Connection,
            _ => CliErrorKind::Protocol,
        };
        let message = crate::terminal::sanitize(&error.to_string());
        let (status, name) = match &error {
            ClientError::Call(CallError::Transport { status, code, .. }) => (*status, Some(*code)),
            _ => (None, None),
        };
        let rpc_error = match error {
            ClientError::Call(CallError::Rejected(error)) => Some(Box::new((error.code, error.data))),
            _ => None,
        };
        let mut failure =
            CliError { rpc_error, status, transport_code: name, ..CliError::new(kind, message) };
        if failure.needs_sign_in() {
            failure.message.push_str("\nadd --sign-in to sign in now");
        }
        failure
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        CliError::new(if is_pipe { CliErrorKind::BrokenPipe } else { CliErrorKind::Other }, error.to_string())
    }
}

impl From<ConfigError> for CliError {
    fn from(problem: ConfigError) -> Self {
        CliError::new(CliErrorKind::Other, problem.to_string())
    }
}

impl From<linchpin_hub_core::Error> for CliError {
    fn from(error: linchpin_hub_core::Error) -> Self {
        CliError::new(CliErrorKind::Other, error.to_string())
    }
}

impl From<linchpin_hub_core::vault::KeyFileError> for CliError {
    fn from(error: linchpin_hub_core::vault::KeyFileError) -> Self {
        CliError::new(CliErrorKind::Other, error.to_string())
    }
}

impl From<linchpin_hub_core::audit::ChainError> for CliError {
    fn from(broken: linchpin_hub_core::audit::ChainError) -> Self {
        CliError::new(CliErrorKind::Other, broken.to_string())
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        let pipe =
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        CliError::new(if pipe { CliErrorKind::BrokenPipe } else { CliErrorKind::Other }, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_not_said_twice() {
        let failure = || CliError::new(CliErrorKind::Connection, "the server exited: one\ntwo");
        assert!(!failure().with_stderr(vec!["one".into(), "two".into()]).to_string().contains("| two"));
        let shown =
            CliError::new(CliErrorKind::Timeout, "no response").with_stderr(vec!["one".into(), "two".into()]);
        assert_eq!(
            shown.to_string(),
            "no response\nlast lines of the server's standard error:\n  | one\n  | two"
        );
        assert_eq!(shown.to_json()["error"]["stderr"], json!(["one", "two"]));
    }
}
