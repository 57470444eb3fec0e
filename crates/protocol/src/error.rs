//! Protocol errors, independent of the revision. [`wire`](crate::wire) maps them to error codes.

use std::fmt;

use serde_json::Value;

use crate::version::Revision;

/// Error codes of the Model Context Protocol, in addition to those of JSON-RPC.
pub mod code {
    pub use linchpin_jsonrpc::code::{
        INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
    };
    /// Error code: the resource was not found (session era).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// An HTTP header does not match the request body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// Error code: the request requires a capability that the client did not declare.
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    /// Error code: the server does not support the protocol version of the request.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// Error code: the user must visit a URL first. Used by one revision only.
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
}

/// Reason why a server rejects a request, independent of the revision.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// The request is not valid in the current state of the connection; the text says what to do.
    InvalidRequest(String),
    /// The method is not available: not in this revision, not supported by the server, or not in this form.
    MethodNotFound(String),
    /// A parameter is missing or invalid.
    InvalidParams {
        /// JSON pointer into the params. Empty for the params as a whole.
        path: String,
        /// What is wrong with the parameter, and what is expected.
        reason: String,
    },
    /// The resource does not exist.
    ResourceNotFound {
        /// URI that the client has requested.
        uri: String,
    },
    /// The request requires a capability that the client did not declare.
    MissingClientCapability {
        /// Capabilities object that the request requires.
        required: Value,
    },
    /// The server does not support the requested protocol version.
    UnsupportedVersion {
        /// Version requested by the client.
        requested: String,
        /// Revisions supported by the server.
        supported: Vec<Revision>,
    },
    /// An HTTP header does not match the request body; the text names the header.
    HeaderMismatch(String),
    /// The caller's token lacks a required scope.
    InsufficientScope {
        /// All scopes that the request requires.
        required: Vec<String>,
    },
    /// Internal error. The text is safe to send to the peer.
    Internal(String),
    /// Error with a code that the application defines.
    Custom {
        /// Error code.
        code: i64,
        /// Error message.
        message: String,
        /// Additional data of the error object.
        data: Option<Value>,
    },
}

impl Error {
    /// Creates an [`Error::InvalidParams`].
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
                write!(f, "The request requires a capability that the client did not declare: {required}")
            }
            Error::UnsupportedVersion { requested, .. } => {
                write!(f, "Unsupported protocol version: {requested}")
            }
            Error::InsufficientScope { required } => {
                write!(f, "Insufficient scope: the request requires {}", required.join(" "))
            }
            Error::Custom { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
