//! Replay of a transcript's client: sends the recorded requests and compares every response with the recorded one.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::Value;

use crate::TEST_TIMEOUT;
use crate::http::Responses;
use crate::http_log::{Entry, ExchangePart, Request};
use crate::placeholders::Placeholders;
use crate::transcript_text;

/// Replays a transcript against the server at `address`. Returns the differences, and all messages with placeholders
/// filled.
pub fn replay(entries: &[Entry], address: &str) -> (Vec<String>, Vec<Entry>) {
    let (mut bindings, mut open) = (Placeholders::default(), HashMap::new());
    let (mut faults, mut heard) = (Vec::new(), Vec::new());
    for entry in entries {
        let exchange = entry.exchange;
        let said = match &entry.part {
            ExchangePart::Request(request) => {
                let request = filled(request, &mut bindings);
                open.insert(exchange, ask(&request, address));
                ExchangePart::Request(request)
            }
            ExchangePart::ClientClosed => {
                drop(open.remove(&exchange));
                ExchangePart::ClientClosed
            }
            expected => {
                let Some(said) = open.get(&exchange).and_then(Exchange::next) else {
                    faults.push(format!("exchange {exchange}: nothing received, expected {expected:?}"));
                    break;
                };
                if !part_matches(expected, &said, &mut bindings) {
                    let shown = |said: &ExchangePart| {
                        let entry = Entry { exchange, part: said.clone() };
                        transcript_text::write("", &[entry])
                    };
                    faults.push(format!("expected\n{}received\n{}", shown(expected), shown(&said)));
                    break;
                }
                said
            }
        };
        heard.push(Entry { exchange, part: said });
    }
    (faults, heard)
}

fn filled(request: &Request, bindings: &mut Placeholders) -> Request {
    let header = |(name, value): &(String, String)| (name.clone(), bindings.fill_text(value));
    let headers = request.headers.iter().map(header).collect();
    Request {
        verb: request.verb.clone(),
        path: bindings.fill_text(&request.path),
        headers,
        body: request.body.as_ref().map(|body| bindings.fill(body)),
    }
}

/// Returns whether a part of the response matches the recorded one.
fn part_matches(expected: &ExchangePart, said: &ExchangePart, bindings: &mut Placeholders) -> bool {
    let pairs = |bindings: &mut Placeholders, expected: &[(String, String)], said: &[(String, String)]| {
        expected.len() == said.len()
            && expected
                .iter()
                .zip(said)
                .all(|((name, expected), (own, said))| name == own && value_matches(expected, said, bindings))
    };
    match (expected, said) {
        (ExchangePart::Head(expected), ExchangePart::Head(said)) => {
            let said_headers = transcript_text::recorded_headers(&said.headers);
            expected.status == said.status && pairs(bindings, &expected.headers, &said_headers)
        }
        (ExchangePart::Event(expected), ExchangePart::Event(said)) => pairs(bindings, expected, said),
        (ExchangePart::Body(expected), ExchangePart::Body(said)) => bindings.matches(expected, said),
        (expected, said) => expected == said,
    }
}

/// Compares a message, or a text that may contain a placeholder.
fn value_matches(expected: &str, said: &str, bindings: &mut Placeholders) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    match (parse(expected), parse(said)) {
        (Some(expected), Some(said)) => bindings.matches(&expected, &said),
        _ => bindings.matches_text(expected, said),
    }
}

/// Running exchange. Dropping it closes its connection.
pub(crate) struct Exchange {
    stream: TcpStream,
    said: Receiver<ExchangePart>,
}

impl Exchange {
    pub(crate) fn next(&self) -> Option<ExchangePart> {
        self.said.recv_timeout(TEST_TIMEOUT).ok()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both); // fails if the server has closed it
    }
}

pub(crate) fn ask(request: &Request, address: &str) -> Exchange {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = request.body.as_ref().map(Value::to_string).unwrap_or_default();
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {address}\r\n", request.verb, request.path);
    for (name, value) in &request.headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    if request.body.is_some() {
        head.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let (told, said) = sync_channel(1_000);
    let mut answer = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let (mut responses, mut buffer) = (Responses::default(), [0; 4096]);
        // If the receiver is dropped, the connection is closed as well.
        let mut tell = |said: ExchangePart| drop(told.send(said));
        while let Ok(count @ 1..) = answer.read(&mut buffer) {
            responses.feed(&buffer[..count], &mut tell);
        }
        responses.end(&mut tell);
    });
    Exchange { stream, said }
}
