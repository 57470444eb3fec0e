//! Calls of the stateless era, round by round, one message at a time: any instance may get the next one.

use linchpin::Service;
use serde_json::{Value, json};

use super::{fault, handled, stateless_with, text};

/// One request that may take several rounds.
#[derive(Clone)]
pub(crate) struct Rounds {
    method: &'static str,
    params: Value,
}

/// What the server asks, and what must be sent back with the answers.
pub(crate) struct Asked {
    pub(crate) questions: Value,
    pub(crate) state: Value,
}

impl Rounds {
    /// A call of a tool.
    pub(crate) fn tool(name: &str, arguments: Value) -> Self {
        Rounds { method: "tools/call", params: json!({"name": name, "arguments": arguments}) }
    }

    /// Any other request.
    pub(crate) fn of(method: &'static str, params: Value) -> Self {
        Rounds { method, params }
    }

    async fn send(&self, service: &Service, params: Value) -> Value {
        let params = stateless_with(params, &json!({"elicitation": {"form": {}}}));
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": self.method, "params": params});
        handled(service, &message).await.unwrap()
    }

    /// The first round, which must ask something.
    pub(crate) async fn begin(&self, service: &Service) -> Asked {
        asked(&self.send(service, self.params.clone()).await)
    }

    /// A later round: the whole answer.
    pub(crate) async fn retry(&self, service: &Service, state: &Value, answers: Value) -> Value {
        let mut params = self.params.clone();
        params["requestState"] = state.clone();
        params["inputResponses"] = answers;
        self.send(service, params).await
    }

    /// A later round, which ends in a text.
    pub(crate) async fn finish(&self, service: &Service, state: &Value, answers: Value) -> String {
        let answer = self.retry(service, state, answers).await;
        assert!(answer.get("result").is_some(), "{answer}");
        text(&answer["result"])
    }

    /// A later round, which is refused: the code, the place and the message.
    pub(crate) async fn refused(
        &self,
        service: &Service,
        state: &Value,
        answers: Value,
    ) -> (i64, Value, String) {
        let answer = self.retry(service, state, answers).await;
        let (code, message) = fault(&answer);
        (code, answer["error"]["data"]["path"].clone(), message)
    }
}

/// An answer that asks.
pub(crate) fn asked(answer: &Value) -> Asked {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    Asked { questions: result["inputRequests"].clone(), state: result["requestState"].clone() }
}

/// What a user fills in.
pub(crate) fn filled(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// The answer of a user with this name to the question `key`.
pub(crate) fn named(key: &str, name: &str) -> Value {
    json!({key: filled(json!({"name": name}))})
}
