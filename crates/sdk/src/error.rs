//! Error type of handlers, server setup and server runs.
//!
//! Any error converts into it with `?`. For that reason it does not implement `std::error::Error` itself; to pass it
//! to code that requires that trait, convert it into a `Box<dyn std::error::Error + Send + Sync>`.

use std::error::Error as StdError;
use std::fmt;

use linchpin_protocol as protocol;
use serde_json::Value;

/// Error of a handler, or of the setup or run of a server. Its kind decides how much of it the peer sees.
pub struct Error(Box<ErrorKind>);

/// Kind of an [`Error`], which decides how much of it the peer sees.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A failure for the model: the text becomes the result of the tool call.
    Tool(String),
    /// A protocol error with a code, sent to the peer unchanged.
    Protocol(protocol::Error),
    /// Any other error. The peer receives a generic text; the detail goes to the reporter.
    Other(Box<dyn StdError + Send + Sync>),
    /// The server definition is invalid, or the server could not be started.
    Setup(String),
}

impl Error {
    fn new(kind: ErrorKind) -> Self {
        Error(Box::new(kind))
    }

    /// Creates an error for the model: the text becomes the result of the tool call.
    pub fn tool(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Tool(text.into()))
    }

    /// Creates a JSON-RPC error with an application code. Codes from -32768 to -32000 are reserved by the protocol.
    pub fn rpc(code: i64, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol(protocol::Error::Custom { code, message: message.into(), data: None }))
    }

    /// Creates a JSON-RPC error with an application code and additional data.
    pub fn rpc_with(code: i64, message: impl Into<String>, data: Value) -> Self {
        let data = Some(data);
        Self::new(ErrorKind::Protocol(protocol::Error::Custom { code, message: message.into(), data }))
    }

    /// Creates an invalid-params error; `path` is a JSON pointer to the parameter, empty for the whole object.
    pub fn invalid_params(path: impl Into<String>, reason: impl Into<String>) -> Self {
        protocol::Error::invalid(path, reason).into()
    }

    /// Creates a resource-not-found error. Its code depends on the revision.
    pub fn resource_not_found(uri: impl Into<String>) -> Self {
        protocol::Error::ResourceNotFound { uri: uri.into() }.into()
    }

    /// Creates a missing-capability error; `required` is the capabilities object that the request needs.
    pub fn missing_capability(required: Value) -> Self {
        protocol::Error::MissingClientCapability { required }.into()
    }

    pub(crate) fn setup(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Setup(text.into()))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }
}

impl From<protocol::Error> for ErrorKind {
    fn from(error: protocol::Error) -> Self {
        ErrorKind::Protocol(error)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let error: Box<dyn StdError + Send + Sync> = Box::new(error);
        Self::new(match error.downcast::<protocol::Error>() {
            Ok(protocol) => ErrorKind::Protocol(*protocol),
            Err(foreign) => ErrorKind::Other(foreign),
        })
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        match *error.0 {
            ErrorKind::Tool(text) | ErrorKind::Setup(text) => text.into(),
            ErrorKind::Protocol(error) => Box::new(error),
            ErrorKind::Other(error) => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorKind::Tool(text) | ErrorKind::Setup(text) => f.write_str(text),
            ErrorKind::Protocol(error) => error.fmt(f),
            ErrorKind::Other(error) => error.fmt(f),
        }
    }
}

/// Prints the message and each distinct cause, since a failing `main` prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.to_string();
        f.write_str(&printed)?;
        if let ErrorKind::Other(error) = &*self.0 {
            let mut source = error.source();
            while let Some(cause) = source {
                let text = cause.to_string();
                // Many errors already include the text of their source.
                if !printed.contains(&text) {
                    write!(f, "\n  because: {text}")?;
                    printed = text;
                }
                source = cause.source();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use crate::{CallError, ClientError, Error};

    #[derive(Debug)]
    struct WrappedIoError(io::Error);

    impl std::fmt::Display for WrappedIoError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the file cannot be read")
        }
    }

    impl std::error::Error for WrappedIoError {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn what_main_prints_says_everything_once() {
        let timed_out = CallError::TimedOut(Duration::from_mins(1));
        let inner = io::Error::other(ClientError::Call(timed_out.clone()));
        let open = ClientError::Open { server: "demo".into(), source: io::Error::other(timed_out.clone()) };
        for (error, expected) in [
            (Error::from(ClientError::Call(timed_out)), "no response within 60s"),
            (Error::from(open), "no response within 60s"),
            (
                Error::from(WrappedIoError(inner)),
                "the file cannot be read\n  because: no response within 60s",
            ),
        ] {
            assert_eq!(format!("{error:?}"), expected);
        }
    }
}
