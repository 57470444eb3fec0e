//! Why a client's request failed.

use std::fmt;
use std::io;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::Revision;
use linchpin_protocol::model::TaskStatus;
use linchpin_protocol::wire::Invalid;

/// Why a client's request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server could not be started or reached.
    Open {
        /// What was to be reached.
        server: String,
        /// Why not.
        source: io::Error,
    },
    /// The server refused it, did not answer in time, or is gone.
    Call(CallError),
    /// A tool was called, and its result did not arrive: the tool may or may not have run. Such a call is never
    /// repeated automatically.
    OutcomeUnknown {
        /// The tool.
        tool: String,
        /// Why the result did not arrive.
        reason: String,
    },
    /// The answer is not what the protocol says.
    Malformed {
        /// The method of the request.
        method: String,
        /// What is wrong, and where.
        invalid: Invalid,
    },
    /// The server writes text to its standard output and sends no message.
    StrayOutput {
        /// The first lines.
        lines: Vec<String>,
    },
    /// There is no revision that both sides speak.
    UnsupportedVersion {
        /// What the server offers.
        offered: Vec<String>,
        /// What this client speaks.
        spoken: Vec<Revision>,
    },
    /// A list that does not end, or has too many entries.
    EndlessList {
        /// The method of the list.
        method: &'static str,
        /// How far it was read.
        pages: usize,
    },
    /// The server does not say that it offers this.
    NotServed {
        /// What was to be asked for.
        method: &'static str,
    },
    /// A skill, or a file of one, that is not what its entry says. It must not be used.
    BadSkill {
        /// Where it is.
        uri: String,
        /// What is wrong.
        fault: String,
    },
    /// Arguments that are no JSON object.
    BadArguments(String),
    /// The server asked for something that this client did not offer.
    NotOffered {
        /// What it asked for.
        method: String,
    },
    /// A handler of this client could not answer a question of the server.
    Question {
        /// What was asked.
        method: String,
        /// Why there is no answer.
        reason: String,
    },
    /// The server asks for more and more input.
    TooManyRounds(usize),
    /// The result is of a kind that this request cannot have.
    UnexpectedResult {
        /// The method of the request.
        method: String,
        /// The kind.
        kind: String,
    },
    /// A tool's result does not match its output schema.
    BadResult {
        /// The tool.
        tool: String,
        /// What is wrong.
        fault: String,
    },
    /// A task ended without a result, or the client could not follow it to its end.
    Task {
        /// Its id.
        id: String,
        /// Its last known status. The task may still run, unless the status is terminal.
        status: TaskStatus,
        /// The message of the server, or why the client could not follow the task.
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
            ClientError::Malformed { method, invalid: Invalid { path, reason } } => {
                write!(f, "the answer to {method} is malformed at \"{path}\": {reason}")
            }
            ClientError::StrayOutput { lines } => write!(
                f,
                "the server writes text to its standard output instead of messages of the protocol; it must log to \
                 standard error. Its first lines: {}",
                lines.iter().map(|line| format!("\"{line}\"")).collect::<Vec<_>>().join(", ")
            ),
            ClientError::UnsupportedVersion { offered, spoken } => {
                write!(f, "the server speaks the protocol revision ")?;
                for (index, version) in offered.iter().enumerate() {
                    write!(f, "{}\"{version}\"", if index == 0 { "" } else { ", " })?;
                }
                write!(f, ", and this client")?;
                for (index, revision) in spoken.iter().enumerate() {
                    write!(f, "{} {revision}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            ClientError::EndlessList { method, pages } => {
                write!(
                    f,
                    "{method} has too many entries, did not end within {pages} pages, or gave the same cursor twice"
                )
            }
            ClientError::NotServed { method } => write!(f, "the server does not offer {method}"),
            ClientError::BadSkill { uri, fault } => write!(f, "{uri} cannot be used: {fault}"),
            ClientError::BadArguments(arguments) => {
                write!(f, "arguments are a JSON object, not {arguments}")
            }
            ClientError::NotOffered { method } => write!(
                f,
                "the server asked for {method}, which this client did not offer: give it a handler when connecting"
            ),
            ClientError::Question { method, reason } => {
                write!(f, "the server's {method} could not be answered: {reason}")
            }
            ClientError::TooManyRounds(rounds) => {
                write!(f, "the server still asks for input after {rounds} rounds")
            }
            ClientError::UnexpectedResult { method, kind } => {
                write!(f, "the answer to {method} is a result of the kind \"{kind}\", which it cannot have")
            }
            ClientError::BadResult { tool, fault } => {
                write!(f, "the result of the tool `{tool}` does not match its output schema: {fault}")
            }
            ClientError::Task { id, status, message } => {
                let state =
                    if status.is_terminal() { "ended as" } else { "may still run: its last status is" };
                write!(f, "the task {id} {state} {}", status.as_str())?;
                message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
            }
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is this error's own: a report of the whole chain would show it twice.
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
