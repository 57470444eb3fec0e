//! A conversation over HTTP: everything that was said, in the order in which it was heard.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// One thing that was said, and in which exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Exchanges are numbered from 1, in the order of their requests.
    pub exchange: usize,
    /// What was said.
    pub said: Said,
}

/// A part of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The client asks.
    Request(Request),
    /// The server begins to answer.
    Head(Head),
    /// An event of the answer, as its fields.
    Event(Vec<(String, String)>),
    /// The whole answer, where it is no stream: JSON, or a string if it is something else.
    Body(Value),
    /// The answer is complete.
    End,
    /// The client does not want the rest.
    Gone,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `POST`, `GET`, `DELETE`.
    pub verb: String,
    /// With its query.
    pub path: String,
    /// By name, in lower case.
    pub headers: Vec<(String, String)>,
    /// The message or messages.
    pub body: Option<Value>,
}

/// The first lines of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// 200 and so on.
    pub status: u16,
    /// By name, in lower case.
    pub headers: Vec<(String, String)>,
}

impl Said {
    /// The messages that this carries.
    pub fn messages(&self) -> Vec<Value> {
        let body = match self {
            Said::Request(request) => request.body.clone(),
            Said::Body(body @ (Value::Object(_) | Value::Array(_))) => Some(body.clone()),
            Said::Event(fields) => event_data(fields),
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
            Said::Request(request) => header(&request.headers).or_else(|| session_of(&request.path)),
            Said::Head(head) => header(&head.headers),
            Said::Event(fields) => fields.iter().find_map(|(_, value)| session_of(value)),
            _ => None,
        }
    }
}

/// The message of an event, unless it is one that says something else.
fn event_data(fields: &[(String, String)]) -> Option<Value> {
    let data = fields.iter().find(|(name, _)| name == "data")?;
    serde_json::from_str(&data.1).ok()
}

/// The session that the query of a path of HTTP+SSE names.
pub(crate) fn session_of(path: &str) -> Option<String> {
    let (_, query) = path.split_once('?')?;
    let is_session = |name: &str| matches!(name, "sessionId" | "session_id");
    let pair = query.split('&').filter_map(|pair| pair.split_once('='));
    pair.into_iter().find(|(name, _)| is_session(name)).map(|(_, value)| value.to_owned())
}

/// What was said in each session, as the lines of the client and those of the server. What was said in none is
/// together under no name.
pub fn conversations(entries: &[Entry]) -> BTreeMap<Option<String>, (String, String)> {
    let mut sessions = BTreeMap::new();
    for entry in entries {
        if let Some(session) = entry.said.session() {
            sessions.entry(entry.exchange).or_insert(session);
        }
    }
    let mut all = BTreeMap::<_, (String, String)>::new();
    for entry in entries {
        let (client, server) = all.entry(sessions.get(&entry.exchange).cloned()).or_default();
        let side = if matches!(entry.said, Said::Request(_)) { client } else { server };
        for message in entry.said.messages() {
            writeln!(side, "{message}").unwrap();
        }
    }
    all
}
