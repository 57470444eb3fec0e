//! What a scripted server does about one message.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

/// What a [`super::Script`] does about one message, step by step. A `Value` is one, too: the result.
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
pub struct Reaction(VecDeque<Step>);

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An answer, to which the id of the request is added.
    Answer(&'static str, Value),
    Bytes(Vec<u8>),
    Wait(Duration),
    Close(String),
}

impl Reaction {
    /// Nothing: a request stays without an answer.
    pub fn new() -> Self {
        Self::default()
    }

    fn then(mut self, step: Step) -> Self {
        self.0.push_back(step);
        self
    }

    /// Answers with a result.
    pub fn result(self, result: Value) -> Self {
        self.then(Step::Answer("result", result))
    }

    /// Answers with an error.
    pub fn error(self, code: i64, message: &str) -> Self {
        self.then(Step::Answer("error", json!({ "code": code, "message": message })))
    }

    /// Answers with an error that says more.
    pub fn error_with(self, code: i64, message: &str, data: &Value) -> Self {
        self.then(Step::Answer("error", json!({ "code": code, "message": message, "data": data })))
    }

    /// Sends a message as it is: an answer with another id, a batch.
    pub fn message(self, message: &Value) -> Self {
        self.raw(&message.to_string())
    }

    /// Sends a notification.
    pub fn notify(self, method: &str, params: &Value) -> Self {
        self.message(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// Sends a request. The answer is told to [`super::Script::on_answer`].
    pub fn ask(self, id: impl Into<Value>, method: &str, params: &Value) -> Self {
        let id = id.into();
        self.message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// Sends a line, whatever it is.
    pub fn raw(self, line: &str) -> Self {
        self.bytes([line.as_bytes(), b"\n"].concat())
    }

    /// Sends bytes: a part of a line, several lines.
    pub fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Bytes(bytes.into()))
    }

    /// Does nothing for a while; other messages are dealt with meanwhile.
    pub fn wait(self, time: Duration) -> Self {
        self.then(Step::Wait(time))
    }

    /// Ends the connection.
    pub fn close(self, reason: &str) -> Self {
        self.then(Step::Close(reason.to_owned()))
    }

    pub(super) fn into_steps(self) -> VecDeque<Step> {
        self.0
    }
}

impl From<Value> for Reaction {
    fn from(result: Value) -> Self {
        Reaction::new().result(result)
    }
}
