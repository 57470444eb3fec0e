//! Error type of the client: failed connections and requests.

use std::fmt;
use std::io;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::Revision;
use linchpin_protocol::model::TaskStatus;
use linchpin_protocol::wire::InvalidValue;

/// Reason why a client cannot connect to a server, or why one of its requests fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server could not be started or reached.
    Open {
        /// Command or URL of the server.
        server: String,
        /// I/O error that caused the failure.
        source: io::Error,
    },
    /// The request failed: the server rejected it, it timed out, or it or its response was lost or invalid.
    Call(CallError),
    /// A tool was called and its result did not arrive: the tool may or may not have run. Such a call is never
    /// retried automatically.
    OutcomeUnknown {
        /// Name of the tool that may have run.
        tool: String,
        /// Why the result did not arrive.
        reason: String,
    },
    /// The response violates the protocol.
    Malformed {
        /// Method of the request whose response is malformed.
        method: String,
        /// What is wrong with the response, and where.
        invalid: InvalidValue,
    },
    /// The server writes text to its standard output and no messages.
    StrayOutput {
        /// First lines of the server's standard output.
        lines: Vec<String>,
    },
    /// Client and server have no revision in common.
    UnsupportedVersion {
        /// Revisions that the server offers.
        offered: Vec<String>,
        /// Revisions that this client supports.
        supported: Vec<Revision>,
    },
    /// A list has too many pages or entries, or repeats a cursor.
    ListTooLong {
        /// Method that lists the entries, such as `tools/list`.
        method: &'static str,
        /// Number of pages of the list that were read.
        pages: usize,
    },
    /// The server does not declare the capability for this method.
    UnsupportedByServer {
        /// Method that the server does not support.
        method: &'static str,
    },
    /// A skill, or one of its files, does not match its declaration and must not be used.
    BadSkill {
        /// URI of the invalid skill or file.
        uri: String,
        /// What is wrong with the skill or file.
        reason: String,
    },
    /// The arguments of the call are not a JSON object.
    BadArguments(String),
    /// The server requested a capability that this client did not declare.
    UnsupportedByClient {
        /// Method of the server request that this client does not support.
        method: String,
    },
    /// A handler of this client failed to handle a server request.
    ServerRequest {
        /// Method of the server request whose handler failed.
        method: String,
        /// Why the handler of the server request failed.
        reason: String,
    },
    /// The server requested input in more round trips than allowed.
    TooManyRounds(usize),
    /// The result type does not fit the request.
    UnexpectedResult {
        /// Method of the request whose result has an unexpected type.
        method: String,
        /// The `resultType` that the server sent.
        kind: String,
    },
    /// A tool's result does not match its output schema.
    BadResult {
        /// Name of the tool whose result does not match its schema.
        tool: String,
        /// What is wrong with the result.
        reason: String,
    },
    /// A task finished without a result, or the client could not follow it to its end.
    Task {
        /// Id of the task.
        id: String,
        /// Last known status of the task. The task may still run, unless the status is terminal.
        status: TaskStatus,
        /// Error message of the server, or why the client could not follow the task.
        message: Option<String>,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Open { source, .. } => source.fmt(f),
            ClientError::Call(error) => error.fmt(f),
            ClientError::OutcomeUnknown { tool, reason } => write!(
                f,
                "the outcome of the call of `{tool}` is unknown, it may or may not have happened: {reason}"
            ),
            ClientError::Malformed { method, invalid: InvalidValue { path, reason } } => {
                write!(f, "malformed response to {method} at \"{path}\": {reason}")
            }
            ClientError::StrayOutput { lines } => write!(
                f,
                "the server writes text instead of protocol messages to its standard output; it must log to \
                 standard error. First lines: {}",
                lines.iter().map(|line| format!("\"{line}\"")).collect::<Vec<_>>().join(", ")
            ),
            ClientError::UnsupportedVersion { offered, supported } => {
                write!(f, "no common protocol revision: the server supports ")?;
                for (index, version) in offered.iter().enumerate() {
                    write!(f, "{}\"{version}\"", if index == 0 { "" } else { ", " })?;
                }
                write!(f, "; this client supports")?;
                for (index, revision) in supported.iter().enumerate() {
                    write!(f, "{} {revision}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            ClientError::ListTooLong { method, pages } => {
                write!(
                    f,
                    "{method} has too many entries, did not end within {pages} pages, or repeated a cursor"
                )
            }
            ClientError::UnsupportedByServer { method } => write!(f, "the server does not support {method}"),
            ClientError::BadSkill { uri, reason } => {
                write!(f, "{uri} cannot be used: {reason}")
            }
            ClientError::BadArguments(arguments) => {
                write!(f, "arguments must be a JSON object, not {arguments}")
            }
            ClientError::UnsupportedByClient { method } => write!(
                f,
                "the server requested {method}, which this client does not support: set a handler for it"
            ),
            ClientError::ServerRequest { method, reason } => {
                write!(f, "failed to handle the server's {method} request: {reason}")
            }
            ClientError::TooManyRounds(rounds) => {
                write!(f, "the server still requests input after {rounds} rounds")
            }
            ClientError::UnexpectedResult { method, kind } => {
                write!(f, "unexpected result type \"{kind}\" in the response to {method}")
            }
            ClientError::BadResult { tool, reason } => {
                write!(f, "the result of the tool `{tool}` does not match its output schema: {reason}")
            }
            ClientError::Task { id, status, message } => {
                let state =
                    if status.is_terminal() { "finished as" } else { "may still run: its last status is" };
                write!(f, "the task {id} {state} {}", status.as_str())?;
                message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
            }
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This error shows the text of its source; a report of the whole chain would print it twice.
            ClientError::Open { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> Self {
        ClientError::Call(error)
    }
}
