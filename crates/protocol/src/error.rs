//! Protocol errors in neutral form. Which code they get depends on the revision and is decided in `wire`.

use std::fmt;

use serde_json::Value;

use crate::version::Revision;

/// Error codes that the Model Context Protocol defines beside those of JSON-RPC.
pub mod code {
    pub use linchpin_jsonrpc::code::{
        INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
    };
    /// Resource not found, in the session era.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// An HTTP header says something else than the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare.
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    /// The server does not speak the revision of the request.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The user must visit a URL first (one revision only).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// The message is no request that can be served now; the text says what to do.
    InvalidRequest(String),
    /// The method does not exist, or not in this revision.
    MethodNotFound(String),
    /// A parameter is missing or wrong.
    InvalidParams {
        /// Where: a JSON pointer into the params, empty for all of them.
        path: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// No such resource.
    ResourceNotFound {
        /// The URI that was asked for.
        uri: String,
    },
    /// The request needs a capability that the client did not declare.
    MissingClientCapability {
        /// The capabilities object that would have been enough.
        required: Value,
    },
    /// The server does not speak this revision.
    UnsupportedVersion {
        /// What the client asked for.
        requested: String,
        /// What the server speaks.
        supported: Vec<Revision>,
    },
    /// An HTTP header says something else than the body; the text says which.
    HeaderMismatch(String),
    /// Whoever asks may not do this.
    InsufficientScope {
        /// All scopes that it needs.
        required: Vec<String>,
    },
    /// The fault is ours; the text is safe to show.
    Internal(String),
    /// An application's own code.
    Custom {
        /// The code.
        code: i64,
        /// The text.
        message: String,
        /// More, as JSON.
        data: Option<Value>,
    },
}

impl Error {
    /// Wrong parameters at a place.
    pub fn invalid(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::InvalidParams { path: path.into(), reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidRequest(text) | Error::Internal(text) | Error::HeaderMismatch(text) => {
                f.write_str(text)
            }
            Error::MethodNotFound(method) => write!(f, "Method not found: {method}"),
            Error::InvalidParams { path, reason } if path.is_empty() => write!(f, "Invalid params: {reason}"),
            Error::InvalidParams { path, reason } => write!(f, "Invalid params at {path}: {reason}"),
            Error::ResourceNotFound { uri } => write!(f, "Resource not found: {uri}"),
            Error::MissingClientCapability { required } => {
                write!(f, "The client did not declare a capability this request needs: {required}")
            }
            Error::UnsupportedVersion { requested, .. } => {
                write!(f, "Unsupported protocol version: {requested}")
            }
            Error::InsufficientScope { required } => {
                write!(f, "This needs other scopes than the token has: {}", required.join(" "))
            }
            Error::Custom { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
