//! Parse errors, error codes and the error object of a response.

use std::borrow::Cow;
use std::fmt;

use crate::Id;

/// Error codes defined by JSON-RPC 2.0.
pub mod code {
    /// Error code: the message is not valid JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// Error code: valid JSON, but not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Error code: the method does not exist or is not available.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Error code: the parameters of the method are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Internal error of the receiver.
    pub const INTERNAL_ERROR: i64 = -32603;
}

/// Reason why a received line is not a valid JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Kind of the parse error.
    pub kind: ParseErrorKind,
    /// Byte offset in the line.
    pub at: usize,
    /// Description of the error.
    pub message: Cow<'static, str>,
    /// Id of the message, if it was read before the error.
    pub id: Option<Id<'static>>,
    /// Whether the invalid message is a response. `id` then refers to a request of the receiver.
    pub is_response: bool,
}

/// Kind of a [`ParseError`]: invalid JSON, a duplicate key, an exceeded limit, or no JSON-RPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Not UTF-8 or not JSON.
    Syntax,
    /// Duplicate key in an object.
    DuplicateKey,
    /// Nested too deeply, too many keys or too many values.
    Limit,
    /// Valid JSON, but not a JSON-RPC 2.0 message.
    Shape,
    /// The `params` of the message are not an object.
    Params,
}

impl ParseError {
    pub(crate) fn new(kind: ParseErrorKind, at: usize, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, at, message: message.into(), id: None, is_response: false }
    }

    /// Returns the JSON-RPC error code for this error.
    pub fn code(&self) -> i64 {
        match self.kind {
            ParseErrorKind::Syntax => code::PARSE_ERROR,
            ParseErrorKind::Params => code::INVALID_PARAMS,
            _ => code::INVALID_REQUEST,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.at)
    }
}

impl std::error::Error for ParseError {}

/// `error` member of a JSON-RPC response: code, message and data.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct ErrorObject {
    /// Error code, such as [`code::INVALID_PARAMS`].
    pub code: i64,
    /// Short description of the error.
    pub message: String,
    /// Additional data about the error.
    #[serde(default)]
    pub data: Option<serde_json::Value>,
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for ErrorObject {}
