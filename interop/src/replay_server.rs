//! Replay of a transcript's server: compares each request with the recorded one and sends the recorded responses, in
//! the same order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use crate::TEST_TIMEOUT;
use crate::http::Requests;
use crate::http_log::{Entry, ExchangePart, Request};
use crate::placeholders::Placeholders;
use crate::transcript_text;

/// Server that replays one transcript.
pub struct ReplayServer {
    address: SocketAddr,
    play: Arc<Replay>,
}

struct Replay {
    entries: Vec<Entry>,
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    bindings: Placeholders,
    /// Whether each request of the transcript has been received.
    claimed: Vec<bool>,
    faults: Vec<String>,
    heard: Vec<Entry>,
    over: bool,
}

impl ReplayServer {
    /// Starts the server on a free port.
    pub fn start(entries: Vec<Entry>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            bindings: Placeholders::default(),
            claimed: vec![false; entries.len()],
            faults: Vec::new(),
            heard: Vec::new(),
            over: false,
        };
        let play = Arc::new(Replay { entries, state: Mutex::new(state), more: Condvar::new() });
        let accepting = play.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.state.lock().unwrap().over {
                    return;
                }
                let (play, Ok(stream)) = (accepting.clone(), stream) else { continue };
                std::thread::spawn(move || play.serve(stream));
            }
        });
        ReplayServer { address, play }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the differences between client and transcript, including missing requests, and all messages.
    pub fn finish(self) -> (Vec<String>, Vec<Entry>) {
        let entries = &self.play.entries;
        let is_missing = |state: &State, at: usize| {
            matches!(entries[at].part, ExchangePart::Request(_))
                && !state.claimed[at]
                && state.faults.is_empty()
        };
        let state = self.play.state.lock().unwrap();
        let any_missing = |state: &mut State| (0..entries.len()).any(|at| is_missing(state, at));
        let (mut state, _) = self.play.more.wait_timeout_while(state, TEST_TIMEOUT, any_missing).unwrap();
        let missing = (0..entries.len()).filter(|at| is_missing(&state, *at));
        let missing = missing.map(|at| format!("missing request\n{}", shown(&entries[at])));
        let missing: Vec<String> = missing.collect();
        let faults = std::mem::take(&mut state.faults).into_iter().chain(missing).collect();
        (faults, std::mem::take(&mut state.heard))
    }
}

impl Drop for ReplayServer {
    fn drop(&mut self) {
        // The lock may be poisoned by a failed test.
        if let Ok(mut state) = self.play.state.lock() {
            state.over = true;
        }
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

fn shown(entry: &Entry) -> String {
    transcript_text::write("", std::slice::from_ref(entry))
}

impl Replay {
    fn serve(&self, mut stream: TcpStream) {
        let (mut requests, mut buffer) = (Requests::default(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let mut asked = Vec::new();
            requests.feed(&buffer[..count], |request| asked.push(request));
            for request in asked {
                let at = self.match_request(request);
                if at.is_none_or(|at| !self.send_response(at, &mut stream)) {
                    let _ = stream.shutdown(Shutdown::Both); // fails if the client has closed it
                    return;
                }
            }
        }
    }

    /// Returns the index of a request in the transcript, if it matches.
    fn match_request(&self, request: Request) -> Option<usize> {
        let mut state = self.state.lock().unwrap();
        let State { bindings, claimed, faults, heard, .. } = &mut *state;
        let found = self.entries.iter().enumerate().position(|(at, entry)| {
            !claimed[at] && matches!(&entry.part, ExchangePart::Request(own) if request_key(own) == request_key(&request))
        });
        let outcome = match found.map(|at| (at, &self.entries[at])) {
            Some((at, entry)) if is_same(&entry.part, &request, bindings) => {
                claimed[at] = true;
                heard.push(Entry { exchange: entry.exchange, part: ExchangePart::Request(request) });
                Ok(at)
            }
            other => {
                let exchange = other.map_or(0, |(_, entry)| entry.exchange);
                let said = shown(&Entry { exchange, part: ExchangePart::Request(request) });
                let expected = other.map_or_else(|| "no such request".to_owned(), |(_, entry)| shown(entry));
                Err(format!("received\n{said}expected\n{expected}"))
            }
        };
        let outcome = outcome.map_err(|fault| faults.push(fault)).ok();
        self.more.notify_all();
        outcome
    }

    /// Sends the recorded response, each part after the requests that precede it in the transcript.
    fn send_response(&self, request: usize, stream: &mut TcpStream) -> bool {
        let exchange = self.entries[request].exchange;
        let answers = self.entries.iter().enumerate().skip(request + 1);
        let mut streaming = false;
        for (at, entry) in answers.filter(|(_, entry)| entry.exchange == exchange) {
            let state = self.state.lock().unwrap();
            let early = |state: &mut State| {
                let waits = |at: usize| {
                    matches!(self.entries[at].part, ExchangePart::Request(_)) && !state.claimed[at]
                };
                state.faults.is_empty() && (0..at).any(waits)
            };
            let (mut state, waited) = self.more.wait_timeout_while(state, TEST_TIMEOUT, early).unwrap();
            if waited.timed_out() || !state.faults.is_empty() {
                let fault = format!("the requests before this were not received:\n{}", shown(entry));
                state.faults.push(fault);
                return false;
            }
            let said = fill(&entry.part, &mut state.bindings);
            state.heard.push(Entry { exchange, part: said.clone() });
            drop(state);
            let bytes = match said {
                ExchangePart::Head(head) => {
                    let mut text = format!("HTTP/1.1 {} Played\r\n", head.status);
                    for (name, value) in &head.headers {
                        text.extend([name, ": ", value, "\r\n"]);
                    }
                    let next = self.entries[at + 1..].iter().find(|entry| entry.exchange == exchange);
                    streaming = !matches!(
                        next.map(|next| &next.part),
                        Some(ExchangePart::Body(_) | ExchangePart::End)
                    );
                    match next.map(|next| &next.part) {
                        Some(ExchangePart::Body(_)) => text,
                        Some(ExchangePart::End) => text + "content-length: 0\r\n\r\n",
                        _ => text + "transfer-encoding: chunked\r\n\r\n",
                    }
                }
                ExchangePart::Body(body) => {
                    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                    format!("content-length: {}\r\n\r\n{body}", body.len())
                }
                ExchangePart::Event(fields) => {
                    let lines: String =
                        fields.iter().flat_map(|(name, value)| [name, ": ", value, "\n"]).collect();
                    format!("{:x}\r\n{lines}\n\r\n", lines.len() + 1)
                }
                ExchangePart::End if streaming => "0\r\n\r\n".to_owned(),
                ExchangePart::End | ExchangePart::Request(_) => String::new(),
                ExchangePart::ClientClosed => {
                    while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
                    return false;
                }
            };
            if stream.write_all(bytes.as_bytes()).is_err() {
                return false;
            }
        }
        true
    }
}

/// Returns the key that distinguishes concurrent requests.
fn request_key(request: &Request) -> (String, String) {
    let body = request.body.as_ref();
    let first = body.map(|body| body.as_array().and_then(|batch| batch.first()).unwrap_or(body));
    let method = first.and_then(|body| body.get("method")).and_then(Value::as_str).unwrap_or_default();
    (request.verb.clone(), method.to_owned())
}

fn is_same(expected: &ExchangePart, request: &Request, bindings: &mut Placeholders) -> bool {
    let ExchangePart::Request(expected) = expected else { return false };
    let headers = transcript_text::recorded_headers(&request.headers);
    expected.verb == request.verb
        && bindings.matches_text(&expected.path, &request.path)
        && expected.headers.len() == headers.len()
        && expected
            .headers
            .iter()
            .zip(&headers)
            .all(|((name, value), (own, said))| name == own && bindings.matches_text(value, said))
        && match (&expected.body, &request.body) {
            (Some(expected), Some(body)) => bindings.matches(expected, body),
            (expected, body) => expected.is_none() && body.is_none(),
        }
}

fn fill(said: &ExchangePart, bindings: &mut Placeholders) -> ExchangePart {
    let mut pairs = |pairs: &[(String, String)]| {
        let fill = |(name, value): &(String, String)| {
            let value = match serde_json::from_str::<Value>(value) {
                Ok(message @ Value::Object(_)) => bindings.fill(&message).to_string(),
                _ => bindings.fill_text(value),
            };
            (name.clone(), value)
        };
        pairs.iter().map(fill).collect::<Vec<_>>()
    };
    match said {
        ExchangePart::Head(head) => {
            ExchangePart::Head(crate::http_log::Head { status: head.status, headers: pairs(&head.headers) })
        }
        ExchangePart::Event(fields) => ExchangePart::Event(pairs(fields)),
        ExchangePart::Body(body) => ExchangePart::Body(bindings.fill(body)),
        other => other.clone(),
    }
}
