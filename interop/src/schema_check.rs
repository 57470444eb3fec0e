//! Validation of our side's messages against the published schemas of their revision.

use std::collections::HashMap;

use serde_json::Value;
use spec_check::Schemas;

use crate::http_log::{Entry, conversations};

/// Returns the schema violations in the messages of `own` to `other`, both given as lines. Returns none if the schemas
/// are not next to the checkout.
pub fn schema_violations(own: &str, other: &str) -> Vec<String> {
    let Some(schemas) = Schemas::find() else { return Vec::new() };
    let (own, other) = (messages(own), messages(other));
    let conversation = Conversation::new(&own, &other);
    let fault = |message: &Value| {
        let fault = conversation.check(schemas, message).err()?;
        Some(format!("{fault}\n{message}"))
    };
    own.iter().filter_map(fault).collect()
}

/// Side that is implemented with Linchpin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OwnSide {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// As [`schema_violations`], for all messages of our side over HTTP, by session.
pub fn schema_violations_over_http(entries: &[Entry], ours: OwnSide) -> Vec<String> {
    schema_violations_of_at_least(6, entries, ours)
}

/// As [`schema_violations_over_http`], for a client that exchanges at least this many messages.
pub fn schema_violations_of_at_least(messages: usize, entries: &[Entry], ours: OwnSide) -> Vec<String> {
    let said = conversations(entries).into_values();
    let said: Vec<_> = said
        .map(|(client, server)| if ours == OwnSide::Client { (client, server) } else { (server, client) })
        .collect();
    let count: usize = said.iter().map(|(own, _)| own.lines().count()).sum();
    assert!(count >= messages, "too few messages: {said:?}");
    said.iter().flat_map(|(own, other)| schema_violations(own, other)).collect()
}

fn messages(lines: &str) -> Vec<Value> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

struct Conversation {
    /// Negotiated revision: from the handshake, or from the first request that names its revision.
    revision: String,
    /// Method and revision of the other side's requests, by id.
    pending_requests: HashMap<String, (String, Option<String>)>,
}

impl Conversation {
    fn new(own: &[Value], other: &[Value]) -> Self {
        let all = || own.iter().chain(other);
        let agreed = all().find_map(|message| message["result"]["protocolVersion"].as_str());
        let said = || all().find_map(revision_of);
        let is_request = |message: &&Value| message.get("method").is_some() && message.get("id").is_some();
        let asked = other.iter().filter(is_request).map(|message| {
            let method = message["method"].as_str().unwrap_or_default().to_owned();
            (message["id"].to_string(), (method, revision_of(message)))
        });
        let revision = agreed.map(str::to_owned).or_else(said).unwrap_or_default();
        Conversation { revision, pending_requests: asked.collect() }
    }

    fn check(&self, schemas: Schemas, message: &Value) -> Result<(), String> {
        let own = revision_of(message);
        let revision = own.as_deref().unwrap_or(&self.revision);
        if message.get("method").is_some() {
            return match message.get("id") {
                Some(_) => schemas.check_request(revision, message),
                None => schemas.check_notification(revision, message),
            };
        }
        let asked = self.pending_requests.get(&message["id"].to_string());
        let (method, revision) = match asked {
            Some((method, own)) => (method, own.as_deref().unwrap_or(&self.revision)),
            None => return Err("response without a matching request".into()),
        };
        if message.get("error").is_some() {
            schemas.check_error(revision, message)
        } else {
            schemas.check_result(revision, method, message)
        }
    }
}

/// Returns the revision that a request names.
fn revision_of(message: &Value) -> Option<String> {
    let meta = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
    meta.or_else(|| message["params"].get("protocolVersion")).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http_log::{ExchangePart, Request};

    #[test]
    fn faults_of_our_side_are_found_and_those_of_the_other_left() {
        let asked = |number: usize, params: Value| {
            let body = json!({ "jsonrpc": "2.0", "id": number, "method": "initialize", "params": params });
            let request =
                Request { verb: "POST".into(), path: "/mcp".into(), headers: vec![], body: Some(body) };
            Entry { exchange: number, part: ExchangePart::Request(request) }
        };
        let info = json!({ "name": "n", "version": "1" });
        let right = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let mut entries: Vec<Entry> = (1..=6).map(|number| asked(number, right.clone())).collect();
        assert_eq!(schema_violations_over_http(&entries, OwnSide::Client), Vec::<String>::new());
        entries.push(asked(7, json!({ "protocolVersion": "2025-11-25" })));
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "wrong": true } });
        entries.push(Entry { exchange: 1, part: ExchangePart::Body(answer) });
        assert_eq!(
            schema_violations_over_http(&entries, OwnSide::Client).len(),
            Schemas::find().into_iter().count()
        );
    }
}
