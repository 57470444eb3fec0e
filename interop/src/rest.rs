//! REST, as programs ask the hub.

use serde_json::{Map, Value};

use crate::log::{Request, Said};
use crate::play_client::{Exchange, ask};

/// Somebody who asks the hub.
#[derive(Clone)]
pub struct Caller {
    address: String,
    token: String,
}

/// What the hub answered.
pub struct Answer {
    /// 200 and so on.
    pub status: u16,
    /// Null if there is none.
    pub body: Value,
}

impl Caller {
    /// Asks the hub at this URL.
    pub fn new(url: &str, token: &str) -> Self {
        Caller {
            address: url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned(),
            token: token.to_owned(),
        }
    }

    /// Another one at the same hub.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Caller { address: self.address.clone(), token: token.to_owned() }
    }

    fn begin(&self, verb: &str, path: &str, more: &[(&str, &str)], body: Option<Value>) -> Exchange {
        let token = format!("Bearer {}", self.token);
        let kind = body.as_ref().map(|_| ("content-type", "application/json"));
        let headers = [("authorization", &*token)].into_iter().chain(kind).chain(more.iter().copied());
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let path = if path.starts_with("/api") { path.to_owned() } else { format!("/api/v1{path}") };
        ask(&Request { verb: verb.to_owned(), path, headers, body }, &self.address)
    }

    /// Asks, and waits for the whole answer.
    #[track_caller]
    pub fn ask(&self, verb: &str, path: &str, body: Option<Value>) -> Answer {
        let exchange = self.begin(verb, path, &[], body);
        let mut answer = Answer { status: 0, body: Value::Null };
        loop {
            match exchange.next() {
                Some(Said::Head(head)) => answer.status = head.status,
                Some(Said::Body(body)) => answer.body = body,
                Some(Said::End) => return answer,
                other => panic!("{verb} {path}: the hub says {other:?}"),
            }
        }
    }

    #[track_caller]
    fn done(&self, verb: &str, path: &str, body: Option<Value>) -> Value {
        let answer = self.ask(verb, path, body);
        assert!((200..300).contains(&answer.status), "{verb} {path}: {} {}", answer.status, answer.body);
        answer.body
    }

    /// Looks at something that is there.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.done("GET", path, None)
    }

    /// All that a list has on its first page.
    #[track_caller]
    pub fn list(&self, path: &str) -> Vec<Value> {
        let Value::Array(items) = self.get(path)["items"].take() else { panic!("{path} is no list") };
        items
    }

    /// Has something done that works; null says nothing else.
    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Value {
        self.done("POST", path, (!body.is_null()).then_some(body))
    }

    /// Changes something.
    #[track_caller]
    pub fn patch(&self, path: &str, body: Value) -> Value {
        self.done("PATCH", path, Some(body))
    }

    /// Puts something in its place.
    #[track_caller]
    pub fn put(&self, path: &str, body: Value) -> Value {
        self.done("PUT", path, Some(body))
    }

    /// Removes something.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        self.done("DELETE", path, None);
    }

    /// Asks for what is refused: the problem document.
    #[track_caller]
    pub fn refused(&self, status: u16, verb: &str, path: &str, body: Value) -> Value {
        let answer = self.ask(verb, path, (!body.is_null()).then_some(body));
        assert_eq!(answer.status, status, "{verb} {path}: {}", answer.body);
        answer.body
    }

    /// Calls a tool and waits until that is over.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        self.post(&format!("/tools/{tool}/call"), with(arguments))
    }

    /// Calls a tool and does not wait.
    #[track_caller]
    pub fn want(&self, tool: &str, arguments: Value) -> Value {
        self.post(&format!("/tools/{tool}/call?wait=false"), with(arguments))
    }

    /// Watches what happens, from now on or after an event.
    pub fn watch(&self, last: Option<&str>) -> Events {
        let last = last.map(|last| ("last-event-id", last));
        let events = Events(self.begin("GET", "/events", last.as_slice(), None));
        let begun = [events.0.next(), events.0.next()]; // the head, and when to come back
        assert!(
            matches!(&begun, [Some(Said::Head(head)), Some(Said::Event(_))] if head.status == 200),
            "{begun:?}"
        );
        events
    }
}

/// What a call says.
fn with(arguments: Value) -> Value {
    Map::from_iter([("arguments".to_owned(), arguments)]).into()
}

/// What happens. Dropping it ends the stream.
pub struct Events(Exchange);

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// For whoever comes back.
    pub id: String,
    /// What kind of thing.
    pub kind: String,
    /// What it says.
    pub body: Value,
}

impl Events {
    /// The next event.
    #[track_caller]
    pub fn next(&self) -> Event {
        match self.0.next() {
            Some(Said::Event(fields)) => {
                let field = |wanted: &str| {
                    let found = fields.iter().find(|(name, _)| name == wanted);
                    found.map(|(_, value)| value.clone()).unwrap_or_default()
                };
                let body = serde_json::from_str(&field("data")).unwrap();
                Event { id: field("id"), kind: field("event"), body }
            }
            other => panic!("the stream says {other:?}"),
        }
    }

    /// Everything up to an event of this kind that is so.
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
