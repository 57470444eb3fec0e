//! Captured HTTP exchanges, in the order of their parts.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// Part of an exchange, with the number of the exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Number of the exchange, from 1, in the order of the requests.
    pub exchange: usize,
    /// The part.
    pub part: ExchangePart,
}

/// Part of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub enum ExchangePart {
    /// Request of the client.
    Request(Request),
    /// Head of the response.
    Head(Head),
    /// Event of the response, as its fields.
    Event(Vec<(String, String)>),
    /// Complete body of a response that is not a stream: JSON, or a string otherwise.
    Body(Value),
    /// End of the response.
    End,
    /// The client has closed the connection before the end.
    ClientClosed,
}

/// HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `POST`, `GET`, `DELETE`.
    pub verb: String,
    /// Path with query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON-RPC message, or a batch.
    pub body: Option<Value>,
}

/// Head of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
}

impl ExchangePart {
    /// Returns the JSON-RPC messages of the part.
    pub fn messages(&self) -> Vec<Value> {
        let body = match self {
            ExchangePart::Request(request) => request.body.clone(),
            ExchangePart::Body(body @ (Value::Object(_) | Value::Array(_))) => Some(body.clone()),
            ExchangePart::Event(fields) => event_data(fields),
            _ => None,
        };
        match body {
            Some(Value::Array(batch)) => batch,
            other => other.into_iter().collect(),
        }
    }

    fn session(&self) -> Option<String> {
        let header = |headers: &[(String, String)]| {
            headers.iter().find(|(name, _)| name == "mcp-session-id").map(|(_, value)| value.clone())
        };
        match self {
            ExchangePart::Request(request) => header(&request.headers).or_else(|| session_of(&request.path)),
            ExchangePart::Head(head) => header(&head.headers),
            ExchangePart::Event(fields) => fields.iter().find_map(|(_, value)| session_of(value)),
            _ => None,
        }
    }
}

/// Returns the message of an event; `None` for other events.
fn event_data(fields: &[(String, String)]) -> Option<Value> {
    let data = fields.iter().find(|(name, _)| name == "data")?;
    serde_json::from_str(&data.1).ok()
}

/// Returns the session id from the query of an HTTP+SSE path.
pub(crate) fn session_of(path: &str) -> Option<String> {
    let (_, query) = path.split_once('?')?;
    let is_session = |name: &str| matches!(name, "sessionId" | "session_id");
    let pair = query.split('&').filter_map(|pair| pair.split_once('='));
    pair.into_iter().find(|(name, _)| is_session(name)).map(|(_, value)| value.to_owned())
}

/// Returns the messages of each session, as lines of the client and lines of the server. Messages without a session
/// have the key `None`.
pub fn conversations(entries: &[Entry]) -> BTreeMap<Option<String>, (String, String)> {
    let mut sessions = BTreeMap::new();
    for entry in entries {
        if let Some(session) = entry.part.session() {
            sessions.entry(entry.exchange).or_insert(session);
        }
    }
    let mut all = BTreeMap::<_, (String, String)>::new();
    for entry in entries {
        let (client, server) = all.entry(sessions.get(&entry.exchange).cloned()).or_default();
        let side = if matches!(entry.part, ExchangePart::Request(_)) { client } else { server };
        for message in entry.part.messages() {
            writeln!(side, "{message}").unwrap();
        }
    }
    all
}
