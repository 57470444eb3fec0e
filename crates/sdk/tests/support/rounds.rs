//! Multi round-trip requests of the stateless era, one message at a time: any instance may get the next one.

use linchpin::Service;
use serde_json::{Value, json};

use super::{fault, handled, stateless_with, text};

/// A request that may take several round trips.
#[derive(Clone)]
pub(crate) struct Rounds {
    method: &'static str,
    params: Value,
}

/// Input requests of the server, and the state to send back.
pub(crate) struct InputRequired {
    pub(crate) input_requests: Value,
    pub(crate) state: Value,
}

impl Rounds {
    /// Creates a tool call.
    pub(crate) fn tool(name: &str, arguments: Value) -> Self {
        Rounds { method: "tools/call", params: json!({"name": name, "arguments": arguments}) }
    }

    /// Creates any other request.
    pub(crate) fn of(method: &'static str, params: Value) -> Self {
        Rounds { method, params }
    }

    async fn send(&self, service: &Service, params: Value) -> Value {
        let params = stateless_with(params, &json!({"elicitation": {"form": {}}}));
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": self.method, "params": params});
        handled(service, &message).await.unwrap()
    }

    /// Sends the first request; the response must request input.
    pub(crate) async fn begin(&self, service: &Service) -> InputRequired {
        input_required(&self.send(service, self.params.clone()).await)
    }

    /// Sends a later request and returns the whole response.
    pub(crate) async fn retry(&self, service: &Service, state: &Value, answers: Value) -> Value {
        let mut params = self.params.clone();
        params["requestState"] = state.clone();
        params["inputResponses"] = answers;
        self.send(service, params).await
    }

    /// Sends a later request, whose result must be text.
    pub(crate) async fn finish(&self, service: &Service, state: &Value, answers: Value) -> String {
        let answer = self.retry(service, state, answers).await;
        assert!(answer.get("result").is_some(), "{answer}");
        text(&answer["result"])
    }

    /// Sends a later request, which must be rejected: returns code, path and message.
    pub(crate) async fn expect_error(
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

/// Parses a response that requests input.
pub(crate) fn input_required(answer: &Value) -> InputRequired {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    InputRequired { input_requests: result["inputRequests"].clone(), state: result["requestState"].clone() }
}

/// Creates the elicitation result of a user who accepts.
pub(crate) fn filled(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// Creates the response with this name to the input request `key`.
pub(crate) fn named(key: &str, name: &str) -> Value {
    json!({key: filled(json!({"name": name}))})
}
