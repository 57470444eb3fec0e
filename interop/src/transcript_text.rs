//! Text format of transcripts: a sequence of entries, with placeholders for values that differ in each run.
//!
//! ```text
//! 2 > POST /mcp
//! mcp-session-id: {session 1}
//!
//! { …the message… }
//!
//! 2 < 202
//!
//! 2 < end
//! ```
//!
//! `>` marks the client, `<` the server. The number is that of the exchange.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::http_log::{Entry, ExchangePart, Head, Request, session_of};

/// Recorded headers.
const HEADERS: [&str; 7] = [
    "accept",
    "allow",
    "content-type",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "www-authenticate",
];

/// Formats a transcript.
pub fn write(title: &str, entries: &[Entry]) -> String {
    let mut text = String::new();
    for line in title.lines() {
        writeln!(text, "# {line}").unwrap();
    }
    for entry in with_placeholders(entries) {
        let number = entry.exchange;
        text.push('\n');
        match entry.part {
            ExchangePart::Request(request) => {
                writeln!(text, "{number} > {} {}", request.verb, request.path).unwrap();
                write_parts(&mut text, &request.headers, request.body.as_ref());
            }
            ExchangePart::Head(head) => {
                writeln!(text, "{number} < {}", head.status).unwrap();
                write_parts(&mut text, &head.headers, None);
            }
            ExchangePart::Event(mut fields) => {
                writeln!(text, "{number} < event").unwrap();
                let message = fields.iter().position(|(name, value)| {
                    name == "data"
                        && serde_json::from_str::<Value>(value).is_ok_and(|value| !value.is_string())
                });
                let message = message.map(|at| serde_json::from_str(&fields.remove(at).1).unwrap());
                write_parts(&mut text, &fields, message.as_ref());
            }
            ExchangePart::Body(body) => {
                writeln!(text, "{number} < body").unwrap();
                write_parts(&mut text, &[], Some(&body));
            }
            ExchangePart::End => writeln!(text, "{number} < end").unwrap(),
            ExchangePart::ClientClosed => writeln!(text, "{number} > gone").unwrap(),
        }
    }
    text
}

fn write_parts(text: &mut String, headers: &[(String, String)], body: Option<&Value>) {
    for (name, value) in headers {
        writeln!(text, "{}", format!("{name}: {value}").trim_end()).unwrap();
    }
    if let Some(body) = body {
        writeln!(text, "\n{}", serde_json::to_string_pretty(body).unwrap()).unwrap();
    }
}

/// Parses the format of [`write`].
pub fn read(text: &str) -> Vec<Entry> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|at| parse_entry_line(lines[*at]).is_some()).collect();
    let ends = starts.iter().copied().skip(1).chain([lines.len()]);
    starts.iter().zip(ends).map(|(start, end)| entry(lines[*start], &lines[start + 1..end])).collect()
}

/// Returns the number, the side and the rest of the first line of an entry.
fn parse_entry_line(line: &str) -> Option<(usize, &str, &str)> {
    let mut words = line.splitn(3, ' ');
    let number = words.next()?.parse().ok()?;
    let side = words.next().filter(|side| matches!(*side, "<" | ">"))?;
    Some((number, side, words.next()?))
}

fn entry(first: &str, lines: &[&str]) -> Entry {
    let (exchange, side, what) = parse_entry_line(first).unwrap();
    let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let split = |line: &&str| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line} is not a header"));
        (name.to_owned(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines[..end].iter().map(split).collect();
    let body = lines[end..].join("\n");
    let body = (!body.trim().is_empty())
        .then(|| serde_json::from_str::<Value>(&body).unwrap_or_else(|error| panic!("{error}: {body}")));
    let said = match (side, what) {
        (">", "gone") => ExchangePart::ClientClosed,
        (">", asked) => {
            let (verb, path) = asked.split_once(' ').unwrap();
            ExchangePart::Request(Request { verb: verb.to_owned(), path: path.to_owned(), headers, body })
        }
        (_, "end") => ExchangePart::End,
        (_, "body") => ExchangePart::Body(body.unwrap()),
        (_, "event") => {
            let data = body.map(|body| ("data".to_owned(), body.to_string()));
            ExchangePart::Event(headers.into_iter().chain(data).collect())
        }
        (_, status) => ExchangePart::Head(Head { status: status.parse().unwrap(), headers }),
    };
    Entry { exchange, part: said }
}

/// Placeholder names assigned so far.
#[derive(Default)]
struct PlaceholderNames(BTreeMap<(&'static str, String), usize>);

impl PlaceholderNames {
    fn of(&mut self, kind: &'static str, value: &str) -> String {
        let next = 1 + self.0.keys().filter(|(own, _)| *own == kind).count();
        let number = *self.0.entry((kind, value.to_owned())).or_insert(next);
        format!("{{{kind} {number}}}")
    }
}

fn with_placeholders(entries: &[Entry]) -> Vec<Entry> {
    let mut names = PlaceholderNames::default();
    entries
        .iter()
        .map(|entry| Entry { exchange: entry.exchange, part: named(&entry.part, &mut names) })
        .collect()
}

fn named(said: &ExchangePart, names: &mut PlaceholderNames) -> ExchangePart {
    match said {
        ExchangePart::Request(request) => ExchangePart::Request(Request {
            verb: request.verb.clone(),
            path: path(&request.path, names),
            headers: headers(&request.headers, names),
            body: request.body.as_ref().map(|body| message(body, "client", names)),
        }),
        ExchangePart::Head(head) => {
            ExchangePart::Head(Head { status: head.status, headers: headers(&head.headers, names) })
        }
        ExchangePart::Event(fields) => ExchangePart::Event(
            fields
                .iter()
                .map(|(name, value)| {
                    let value = match (name.as_str(), serde_json::from_str::<Value>(value)) {
                        ("id", _) => names.of("event", value),
                        ("data", Ok(data)) => message(&data, "server", names).to_string(),
                        ("data", _) => path(value, names),
                        _ => value.clone(),
                    };
                    (name.clone(), value)
                })
                .collect(),
        ),
        ExchangePart::Body(body) => ExchangePart::Body(message(body, "server", names)),
        other => other.clone(),
    }
}

/// Replaces the session id in the query of a path.
fn path(path: &str, names: &mut PlaceholderNames) -> String {
    session_of(path).map_or(path.to_owned(), |session| path.replace(&session, &names.of("session", &session)))
}

/// Returns the headers that a transcript contains.
pub(crate) fn recorded_headers(headers: &[(String, String)]) -> Vec<(String, String)> {
    let mut known: Vec<_> =
        headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str())).cloned().collect();
    known.sort();
    known
}

fn headers(headers: &[(String, String)], names: &mut PlaceholderNames) -> Vec<(String, String)> {
    let with_name = |(name, value): (String, String)| {
        let value = match name.as_str() {
            "mcp-session-id" => names.of("session", &value),
            "last-event-id" => names.of("event", &value),
            _ => value,
        };
        (name, value)
    };
    recorded_headers(headers).into_iter().map(with_name).collect()
}

/// Replaces ids and tokens in a message or batch of one side. An id is named after the side that sent the request.
fn message(body: &Value, side: &'static str, names: &mut PlaceholderNames) -> Value {
    let mut body = body.clone();
    if let Value::Array(batch) = &body {
        return batch.iter().map(|one| message(one, side, names)).collect();
    }
    let asks = body.get("method").is_some();
    let other = if side == "client" { "server" } else { "client" };
    if let Some(id) = body.get_mut("id").filter(|id| !id.is_null()) {
        *id = names.of(if asks { side } else { other }, &id.to_string()).into();
    }
    if body["method"] == "notifications/cancelled" {
        let id = &mut body["params"]["requestId"];
        *id = names.of(side, &id.to_string()).into();
    }
    for token in ["/params/_meta/progressToken", "/params/progressToken"] {
        if let Some(token) = body.pointer_mut(token) {
            *token = names.of("token", &token.to_string()).into();
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = r#"# A title
# of two lines

1 > POST /messages?sessionId={session 1}
accept: a, b
content-type: application/json

{
  "id": "{client 1}",
  "method": "tools/call",
  "params": {
    "_meta": {
      "progressToken": "{token 1}"
    }
  }
}

1 < 200
content-type: text/event-stream

1 < event
id: {event 1}
data:

1 < event
event: message

{
  "id": "{client 1}",
  "result": {}
}

1 < end

2 > GET /mcp
last-event-id: {event 1}
mcp-session-id: {session 1}

2 > gone

3 > DELETE /mcp

3 < 404

3 < body

"no such thing"

3 < end
"#;
        let entries = read(text);
        assert_eq!(entries.len(), 11);
        assert_eq!(write("A title\nof two lines", &entries), text);
    }
}
