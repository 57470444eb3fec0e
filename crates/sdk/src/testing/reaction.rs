//! Reactions of a scripted server to a message.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

/// Reaction of a [`super::Script`] to one message, as a list of steps. A `Value` converts into a reaction with that
/// result.
///
/// ```
/// use linchpin::testing::Reaction;
/// use serde_json::json;
/// use std::time::Duration;
///
/// // Noise, a pause, and two answers where one is wanted.
/// let _ = Reaction::new()
///     .raw("Server started!")
///     .wait(Duration::from_secs(1))
///     .result(json!({ "content": [] }))
///     .error(-32603, "or not");
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a reaction is given to a script"]
pub struct Reaction(VecDeque<ReactionStep>);

#[derive(Debug, Clone)]
pub(super) enum ReactionStep {
    /// A response, to which the id of the request is added.
    Response(&'static str, Value),
    Bytes(Vec<u8>),
    Wait(Duration),
    Close(String),
}

impl Reaction {
    /// Creates an empty reaction: a request gets no response.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(mut self, step: ReactionStep) -> Self {
        self.0.push_back(step);
        self
    }

    /// Responds to the client with this result.
    pub fn result(self, result: Value) -> Self {
        self.push(ReactionStep::Response("result", result))
    }

    /// Responds to the client with this error.
    pub fn error(self, code: i64, message: &str) -> Self {
        self.push(ReactionStep::Response("error", json!({ "code": code, "message": message })))
    }

    /// Responds to the client with this error, including `data`.
    pub fn error_with(self, code: i64, message: &str, data: &Value) -> Self {
        self.push(ReactionStep::Response("error", json!({ "code": code, "message": message, "data": data })))
    }

    /// Sends a message to the client unchanged, for example a response with another id, or a batch.
    pub fn message(self, message: &Value) -> Self {
        self.raw(&message.to_string())
    }

    /// Sends a notification with these parameters to the client.
    pub fn notify(self, method: &str, params: &Value) -> Self {
        self.message(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// Sends a server request to the client. Its response goes to [`super::Script::on_response`].
    pub fn request(self, id: impl Into<Value>, method: &str, params: &Value) -> Self {
        let id = id.into();
        self.message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// Sends this line to the client, whether it is valid JSON or not.
    pub fn raw(self, line: &str) -> Self {
        self.bytes([line.as_bytes(), b"\n"].concat())
    }

    /// Sends bytes to the client: a part of a line, or several lines.
    pub fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.push(ReactionStep::Bytes(bytes.into()))
    }

    /// Waits before the next step; other messages are handled in the meantime.
    pub fn wait(self, time: Duration) -> Self {
        self.push(ReactionStep::Wait(time))
    }

    /// Adds a step that closes the connection.
    pub fn close(self, reason: &str) -> Self {
        self.push(ReactionStep::Close(reason.to_owned()))
    }

    pub(super) fn into_steps(self) -> VecDeque<ReactionStep> {
        self.0
    }
}

impl From<Value> for Reaction {
    fn from(result: Value) -> Self {
        Reaction::new().result(result)
    }
}
