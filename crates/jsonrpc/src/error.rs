//! What can be wrong with a message, and the error object of an answer.

use std::borrow::Cow;
use std::fmt;

use crate::Id;

/// The error codes that JSON-RPC 2.0 itself defines.
pub mod code {
    /// The bytes are not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// JSON, but not a message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody answers to this method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method exists, its parameters are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The fault is on our side.
    pub const INTERNAL_ERROR: i64 = -32603;
}

/// Why a line is not a message. `at` is a byte offset into the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// What kind of fault it is.
    pub kind: ParseErrorKind,
    /// Where in the line, in bytes.
    pub at: usize,
    /// What is wrong, in words.
    pub message: Cow<'static, str>,
    /// The id of the message, when it could be read before the fault.
    pub id: Option<Id<'static>>,
    /// Whether the message was an answer; then the id is that of a request of the receiver.
    pub is_response: bool,
}

/// The kinds of [`ParseError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Not UTF-8 or not JSON.
    Syntax,
    /// The same key twice in one object.
    DuplicateKey,
    /// Too deep, too many keys or too many values.
    Limit,
    /// JSON, but not a JSON-RPC 2.0 message.
    Shape,
    /// A message whose parameters are not an object.
    Params,
}

impl ParseError {
    pub(crate) fn new(kind: ParseErrorKind, at: usize, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, at, message: message.into(), id: None, is_response: false }
    }

    /// The JSON-RPC code that answers this fault.
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

/// The `error` member of an answer.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct ErrorObject {
    /// A number that programs act on.
    pub code: i64,
    /// A sentence that people read.
    pub message: String,
    /// Anything else, as JSON.
    #[serde(default)]
    pub data: Option<serde_json::Value>,
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for ErrorObject {}
