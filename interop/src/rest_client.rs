//! REST client of the hub.

use serde_json::{Map, Value};

use crate::http_log::{ExchangePart, Request};
use crate::replay_client::{Exchange, ask};

/// Client with a token.
#[derive(Clone)]
pub struct RestClient {
    address: String,
    token: String,
}

/// Response of the hub.
pub struct RestResponse {
    /// HTTP status.
    pub status: u16,
    /// JSON body; null if the response has none.
    pub body: Value,
}

impl RestClient {
    /// Creates a client of the hub at this URL.
    pub fn new(url: &str, token: &str) -> Self {
        RestClient {
            address: url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned(),
            token: token.to_owned(),
        }
    }

    /// Returns a client of the same hub with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        RestClient { address: self.address.clone(), token: token.to_owned() }
    }

    /// Returns the host and port of the hub.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn begin(&self, verb: &str, path: &str, more: &[(&str, &str)], body: Option<Value>) -> Exchange {
        let token = format!("Bearer {}", self.token);
        let kind = body.as_ref().map(|_| ("content-type", "application/json"));
        let headers = [("authorization", &*token)].into_iter().chain(kind).chain(more.iter().copied());
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let path = if path.starts_with("/api") { path.to_owned() } else { format!("/api/v1{path}") };
        ask(&Request { verb: verb.to_owned(), path, headers, body }, &self.address)
    }

    /// Sends a request and reads the complete response.
    #[track_caller]
    pub fn send(&self, verb: &str, path: &str, body: Option<Value>) -> RestResponse {
        let exchange = self.begin(verb, path, &[], body);
        let mut answer = RestResponse { status: 0, body: Value::Null };
        loop {
            match exchange.next() {
                Some(ExchangePart::Head(head)) => answer.status = head.status,
                Some(ExchangePart::Body(body)) => answer.body = body,
                Some(ExchangePart::End) => return answer,
                other => panic!("{verb} {path}: unexpected response {other:?}"),
            }
        }
    }

    #[track_caller]
    fn expect_success(&self, verb: &str, path: &str, body: Option<Value>) -> Value {
        let answer = self.send(verb, path, body);
        assert!((200..300).contains(&answer.status), "{verb} {path}: {} {}", answer.status, answer.body);
        answer.body
    }

    /// Sends `GET`, which must succeed.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.expect_success("GET", path, None)
    }

    /// Returns the items on the first page of a list.
    #[track_caller]
    pub fn list(&self, path: &str) -> Vec<Value> {
        let Value::Array(items) = self.get(path)["items"].take() else { panic!("{path} is not a list") };
        items
    }

    /// Sends `POST`, which must succeed; null sends no body.
    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Value {
        self.expect_success("POST", path, (!body.is_null()).then_some(body))
    }

    /// Sends `PATCH`, which must succeed.
    #[track_caller]
    pub fn patch(&self, path: &str, body: Value) -> Value {
        self.expect_success("PATCH", path, Some(body))
    }

    /// Sends `PUT`, which must succeed.
    #[track_caller]
    pub fn put(&self, path: &str, body: Value) -> Value {
        self.expect_success("PUT", path, Some(body))
    }

    /// Sends `DELETE`, which must succeed.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        self.expect_success("DELETE", path, None);
    }

    /// Sends a request that must fail and returns the problem document.
    #[track_caller]
    pub fn expect_error(&self, status: u16, verb: &str, path: &str, body: Value) -> Value {
        let answer = self.send(verb, path, (!body.is_null()).then_some(body));
        assert_eq!(answer.status, status, "{verb} {path}: {}", answer.body);
        answer.body
    }

    /// Calls a tool and waits for the outcome.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        self.post(&format!("/tools/{tool}/call"), call_body(arguments))
    }

    /// Calls a tool without waiting for the outcome.
    #[track_caller]
    pub fn call_async(&self, tool: &str, arguments: Value) -> Value {
        self.post(&format!("/tools/{tool}/call?wait=false"), call_body(arguments))
    }

    /// Subscribes to events, from now on or after an event.
    pub fn subscribe(&self, last: Option<&str>) -> Events {
        let last = last.map(|last| ("last-event-id", last));
        let events = Events(self.begin("GET", "/events", last.as_slice(), None));
        let begun = [events.0.next(), events.0.next()]; // the head and the retry time
        assert!(
            matches!(&begun, [Some(ExchangePart::Head(head)), Some(ExchangePart::Event(_))] if head.status == 200),
            "{begun:?}"
        );
        events
    }
}

/// Returns the body of a call request.
fn call_body(arguments: Value) -> Value {
    Map::from_iter([("arguments".to_owned(), arguments)]).into()
}

/// Event stream. Dropping it closes the stream.
pub struct Events(Exchange);

/// Event of the hub.
#[derive(Clone, Debug)]
pub struct Event {
    /// Event id, for resumption.
    pub id: String,
    /// Kind of the event.
    pub kind: String,
    /// Data of the event.
    pub body: Value,
}

impl Events {
    /// Returns the next event.
    #[track_caller]
    pub fn next(&self) -> Event {
        match self.0.next() {
            Some(ExchangePart::Event(fields)) => {
                let field = |wanted: &str| {
                    let found = fields.iter().find(|(name, _)| name == wanted);
                    found.map(|(_, value)| value.clone()).unwrap_or_default()
                };
                let body = serde_json::from_str(&field("data")).unwrap();
                Event { id: field("id"), kind: field("event"), body }
            }
            other => panic!("unexpected part of the stream: {other:?}"),
        }
    }

    /// Returns all events up to one of this kind that satisfies a condition.
    #[track_caller]
    pub fn until(&self, kind: &str, is_so: impl Fn(&Value) -> bool) -> Vec<Event> {
        let mut seen = Vec::new();
        loop {
            let event = self.next();
            let is_last = event.kind == kind && is_so(&event.body);
            seen.push(event);
            if is_last {
                return seen;
            }
        }
    }
}
