//! The error of handlers, and of building and running a server.
//!
//! Any error converts into it with `?`. That is why it does not implement `std::error::Error` itself; to hand it
//! to code that wants one, convert it into a `Box<dyn std::error::Error + Send + Sync>`.

use std::error::Error as StdError;
use std::fmt;

use linchpin_protocol as protocol;
use serde_json::Value;

/// Why something failed, and how much of it the other side may see.
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A failure that the model should read: its text becomes the result of the tool call.
    Tool(String),
    /// A protocol error with a code; the other side sees it as it is.
    Protocol(protocol::Error),
    /// Any other error. The other side sees a general text; the detail goes to the reporter.
    Foreign(Box<dyn StdError + Send + Sync>),
    /// Something about the server's own definition or start is wrong.
    Setup(String),
}

impl Error {
    fn new(kind: ErrorKind) -> Self {
        Error(Box::new(kind))
    }

    /// A failure that the model should read and can act on.
    pub fn tool(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Tool(text.into()))
    }

    /// A JSON-RPC error with a code of your own. Codes from -32768 to -32000 are the protocol's.
    pub fn rpc(code: i64, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol(protocol::Error::Custom { code, message: message.into(), data: None }))
    }

    /// A JSON-RPC error with a code of your own and more to say.
    pub fn rpc_with(code: i64, message: impl Into<String>, data: Value) -> Self {
        let data = Some(data);
        Self::new(ErrorKind::Protocol(protocol::Error::Custom { code, message: message.into(), data }))
    }

    /// Wrong parameters; `path` is a JSON pointer, empty for all of them.
    pub fn invalid_params(path: impl Into<String>, reason: impl Into<String>) -> Self {
        protocol::Error::invalid(path, reason).into()
    }

    /// No such resource. The code depends on the revision.
    pub fn resource_not_found(uri: impl Into<String>) -> Self {
        protocol::Error::ResourceNotFound { uri: uri.into() }.into()
    }

    /// The client lacks a capability; `required` is the capabilities object that would have been enough.
    pub fn missing_capability(required: Value) -> Self {
        protocol::Error::MissingClientCapability { required }.into()
    }

    pub(crate) fn setup(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Setup(text.into()))
    }

    /// What kind it is.
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
            Err(foreign) => ErrorKind::Foreign(foreign),
        })
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        match *error.0 {
            ErrorKind::Tool(text) | ErrorKind::Setup(text) => text.into(),
            ErrorKind::Protocol(error) => Box::new(error),
            ErrorKind::Foreign(error) => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorKind::Tool(text) | ErrorKind::Setup(text) => f.write_str(text),
            ErrorKind::Protocol(error) => error.fmt(f),
            ErrorKind::Foreign(error) => error.fmt(f),
        }
    }
}

/// Shows the message and its causes, each once, since this is what a failing `main` prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.to_string();
        f.write_str(&said)?;
        if let ErrorKind::Foreign(error) = &*self.0 {
            let mut source = error.source();
            while let Some(cause) = source {
                let text = cause.to_string();
                // Many errors repeat the text of their source in their own.
                if !said.contains(&text) {
                    write!(f, "\n  because: {text}")?;
                    said = text;
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
    struct Outer(io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the file cannot be read")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn what_main_prints_says_everything_once() {
        let timed_out = CallError::TimedOut(Duration::from_mins(1));
        let inner = io::Error::other(ClientError::Call(timed_out.clone()));
        let open = ClientError::Open { server: "demo".into(), source: io::Error::other(timed_out.clone()) };
        for (error, shown) in [
            (Error::from(ClientError::Call(timed_out)), "no answer within 60s"),
            (Error::from(open), "no answer within 60s"),
            (Error::from(Outer(inner)), "the file cannot be read\n  because: no answer within 60s"),
        ] {
            assert_eq!(format!("{error:?}"), shown);
        }
    }
}
