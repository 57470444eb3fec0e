//! Why a client's request failed.

use std::fmt;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::wire::Invalid;

/// Why a client's request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused it, did not answer in time, or is gone.
    Call(CallError),
    /// The answer is not what the protocol says.
    Malformed {
        /// The method of the request.
        method: String,
        /// What is wrong, and where.
        invalid: Invalid,
    },
    /// The server wants to speak a revision that is not known here.
    UnsupportedVersion(String),
    /// A list that gives cursor after cursor and does not end.
    EndlessList(&'static str),
    /// Arguments of a tool that are no JSON object.
    BadArguments(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Call(error) => error.fmt(f),
            ClientError::Malformed { method, invalid: Invalid { path, reason } } => {
                write!(f, "the answer to {method} is malformed at \"{path}\": {reason}")
            }
            ClientError::UnsupportedVersion(version) => {
                write!(f, "the server speaks the protocol revision \"{version}\", which is not known here")
            }
            ClientError::EndlessList(method) => write!(f, "{method} gives page after page without an end"),
            ClientError::BadArguments(arguments) => {
                write!(f, "the arguments of a tool are a JSON object, not {arguments}")
            }
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Call(error) => Some(error),
            _ => None,
        }
    }
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> Self {
        ClientError::Call(error)
    }
}
