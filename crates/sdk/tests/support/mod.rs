//! Scripted client: it drives a server over pipes, line by line, and validates the messages of both sides against
//! the official schemas.
#![allow(clippy::allow_attributes, dead_code, unused_imports, reason = "each test file uses a part of it")]
#![expect(clippy::unwrap_used, reason = "used only in tests")]
#![expect(clippy::needless_pass_by_value, reason = "parameters are written in place")]

pub(crate) mod call_scenarios;
pub(crate) mod live_counter;
pub(crate) mod log_capture;
pub(crate) mod paused;
pub(crate) mod rounds;
mod schema;
mod schema_tap;
pub(crate) mod sockets;
pub(crate) mod task_server;
pub(crate) mod web;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use linchpin::model::key;
use linchpin::{Revision, Server, Service};
use serde_json::{Map, Value, json};
use spec_check::Conversation;

pub(crate) use schema_tap::{SchemaTap, of};

/// Timeout for a line. Only a failing test reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const STATELESS: Revision = Revision::LATEST;

/// Returns the revisions that open with `initialize`.
pub(crate) fn session_revisions() -> impl Iterator<Item = Revision> {
    Revision::ALL.into_iter().filter(|revision| *revision != STATELESS)
}

/// Clock of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Real,
    /// Advances to the next deadline whenever nothing else is to be done.
    Paused,
}

/// Client end of a connection.
pub(crate) struct Peer {
    pub(crate) revision: Revision,
    /// The result of `initialize` or `server/discover`.
    pub(crate) opened: Value,
    /// Capabilities of the client, sent in every stateless request.
    capabilities: Value,
    input: Option<PipeWriter>,
    lines: Receiver<String>,
    server: JoinHandle<linchpin::Result>,
    /// Method and revision of each sent request, by id.
    asked: HashMap<String, (String, Revision)>,
    /// Messages so far, for lines that are read in any order.
    conversation: Conversation,
    /// The revision that the server knows, once it does.
    spoken: Option<Revision>,
    next: i64,
}

pub(crate) fn runtime(clock: Clock) -> tokio::runtime::Runtime {
    let paused = clock == Clock::Paused;
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(paused).build().unwrap()
}

impl Peer {
    /// Connects without sending anything.
    pub(crate) fn connect(revision: Revision, service: Service, clock: Clock) -> Peer {
        let (theirs, ours) = pipe().unwrap();
        let (answers, output) = pipe().unwrap();
        let runtime = runtime(clock);
        let server = std::thread::spawn(move || runtime.block_on(service.run_on(theirs, output)));
        let (opened, asked) = (Value::Null, HashMap::new());
        let lines = collect(answers);
        let conversation = Conversation::new();
        let (input, capabilities) = (Some(ours), json!({}));
        Peer {
            revision,
            opened,
            capabilities,
            input,
            lines,
            server,
            asked,
            conversation,
            spoken: None,
            next: 0,
        }
    }

    /// Connects and opens the connection as the revision requires.
    pub(crate) fn open(revision: Revision, server: Server) -> Peer {
        Self::open_with(revision, server.build().unwrap(), Clock::Real, &json!({}))
    }

    /// Like [`Self::open`], with a paused clock.
    pub(crate) fn open_paused(revision: Revision, server: Server) -> Peer {
        Self::open_with(revision, server.build().unwrap(), Clock::Paused, &json!({}))
    }

    /// Like [`Self::open`], with these client capabilities.
    pub(crate) fn open_with(
        revision: Revision,
        service: Service,
        clock: Clock,
        capabilities: &Value,
    ) -> Peer {
        let mut peer = Self::connect(revision, service, clock);
        peer.capabilities.clone_from(capabilities);
        if revision == STATELESS {
            peer.opened = peer.result("server/discover", json!({}));
        } else {
            peer.opened = peer.result("initialize", initialize(revision.as_str(), capabilities));
            peer.notify("notifications/initialized", Value::Null);
        }
        peer
    }

    /// Sends arbitrary bytes and a newline.
    pub(crate) fn raw(&mut self, line: impl AsRef<[u8]>) {
        let line = line.as_ref();
        self.conversation.record_sent(line);
        if let Ok(message) = serde_json::from_slice::<Value>(line) {
            let batch = message.as_array().cloned().unwrap_or_else(|| vec![message]);
            for message in &batch {
                self.remember(message);
            }
        }
        let input = self.input.as_mut().unwrap();
        input.write_all(&[line, b"\n"].concat()).unwrap();
    }

    fn remember(&mut self, message: &Value) {
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else { return };
        let stateless =
            message.pointer("/params/_meta").is_some_and(|meta| meta.get(key::PROTOCOL_VERSION).is_some());
        let revision = if stateless { STATELESS } else { self.revision };
        if stateless || method == "initialize" {
            self.spoken = Some(revision);
        }
        self.asked.insert(id.to_string(), (method.to_owned(), revision));
    }

    /// Creates a request of the revision, with a new id.
    pub(crate) fn message(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": self.next, "method": method});
        let params = match self.revision {
            STATELESS => stateless_with(params, &self.capabilities),
            _ => params,
        };
        if !params.is_null() {
            message["params"] = params;
        }
        message
    }

    /// Sends a request that is valid under the schema, and returns its id without waiting for the response.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Value {
        let message = self.message(method, params);
        schema::check_sent(self.revision, &message);
        self.raw(message.to_string());
        message["id"].clone()
    }

    /// Sends a request; the next line must be its response.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(&id)
    }

    /// Reads the next line, which must be the response to the request `id`.
    pub(crate) fn answer(&mut self, id: &Value) -> Value {
        let line = self.read();
        assert_eq!(line["id"], *id, "{line}");
        line
    }

    /// Sends a request and returns its result.
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params);
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Sends a request, which may be invalid under the schema, and returns code and message of the error response.
    pub(crate) fn error(&mut self, method: &str, params: Value) -> (i64, String) {
        let message = self.message(method, params);
        self.raw(message.to_string());
        fault(&self.answer(&message["id"]))
    }

    /// Calls a tool and returns the result.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool and returns its text, which must be its only block.
    pub(crate) fn call_text(&mut self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments))
    }

    /// Asserts that the session is open: the next request gets a response.
    pub(crate) fn alive(&mut self) {
        self.result("tools/list", json!({}));
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        schema::check_sent(self.revision, &message);
        self.raw(message.to_string());
    }

    /// Reads the next line of the server.
    pub(crate) fn read(&mut self) -> Value {
        let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("the server sends a line");
        self.heard(&line);
        self.checked(&line)
    }

    /// Reads the next line, which must be a server request of this method.
    pub(crate) fn question(&mut self, method: &str) -> Value {
        let line = self.read();
        assert_eq!(line["method"], method, "{line}");
        assert!(line.get("id").is_some(), "{line}");
        line
    }

    /// Responds to a server request.
    pub(crate) fn reply(&mut self, question: &Value, result: Value) {
        self.raw(json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string());
    }

    /// Reads the next line as an error: code and message.
    pub(crate) fn read_error(&mut self) -> (i64, String) {
        fault(&self.read())
    }

    fn checked(&self, line: &str) -> Value {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if let Some(batch) = message.as_array() {
            schema::check_batch(self.revision, &message);
            for message in batch {
                self.check(message);
            }
        } else {
            self.check(&message);
        }
        message
    }

    fn check(&self, message: &Value) {
        let asked = message.get("id").and_then(|id| self.asked.get(&id.to_string()));
        match asked.filter(|_| message.get("method").is_none()) {
            Some((method, revision)) => schema::check_answer(*revision, method, message),
            // Before the client is known, an error has the form of plain JSON-RPC.
            None => schema::check_unsolicited(self.spoken.unwrap_or(Revision::ALL[0]), message),
        }
    }

    /// Ends the input. Returns the remaining messages of the server, and its result.
    pub(crate) fn end(mut self) -> (Vec<Value>, linchpin::Result) {
        drop(self.input.take());
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(TEST_TIMEOUT) {
            rest.push(self.checked(&line));
        }
        (rest, self.server.join().expect("the server does not panic"))
    }

    /// Sends arbitrary bytes, possibly several lines.
    pub(crate) fn send_bytes(&mut self, lines: &[u8]) {
        self.conversation.record_sent(lines);
        self.input.as_mut().unwrap().write_all(&[lines, b"\n"].concat()).unwrap();
    }

    /// Reads the next line, whatever it is.
    pub(crate) fn read_any(&mut self) -> Value {
        let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("the server sends a line");
        self.heard(&line)
    }

    /// Ends the input. Returns the remaining messages of the server, which must end successfully.
    pub(crate) fn end_any(mut self) -> Vec<Value> {
        drop(self.input.take());
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(TEST_TIMEOUT) {
            rest.push(self.heard(&line));
        }
        self.server.join().expect("the server does not panic").unwrap();
        rest
    }

    fn heard(&mut self, line: &str) -> Value {
        self.conversation
            .check_received(line)
            .unwrap_or_else(|fault| panic!("invalid in its revision: {fault}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Ends the input; the server must have no more messages.
    pub(crate) fn close(self) {
        let (rest, ended) = self.end();
        assert_eq!(rest, Vec::<Value>::new());
        ended.unwrap();
    }
}

fn collect(answers: PipeReader) -> Receiver<String> {
    let (sender, lines) = sync_channel(10_000);
    std::thread::spawn(move || {
        for line in BufReader::new(answers).lines() {
            if sender.send(line.expect("lines are UTF-8")).is_err() {
                return;
            }
        }
    });
    lines
}

/// Creates the parameters of `initialize`.
pub(crate) fn initialize(version: &str, capabilities: &Value) -> Value {
    let info = json!({"name": "peer", "version": "1"});
    json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info})
}

/// Adds the metadata of every stateless request; existing members are not replaced.
pub(crate) fn stateless(params: Value) -> Value {
    stateless_with(params, &json!({}))
}

/// Like [`stateless`], with these client capabilities.
pub(crate) fn stateless_with(params: Value, capabilities: &Value) -> Value {
    let mut params = params.as_object().cloned().unwrap_or_default();
    let meta = params.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    if let Some(meta) = meta.as_object_mut() {
        let info = json!({"name": "peer", "version": "1"});
        for (key, value) in [
            (key::PROTOCOL_VERSION, STATELESS.as_str().into()),
            (key::CLIENT_CAPABILITIES, capabilities.clone()),
            (key::CLIENT_INFO, info),
        ] {
            meta.entry(key).or_insert(value);
        }
    }
    Value::Object(params)
}

/// Returns code and message of an error response.
pub(crate) fn fault(answer: &Value) -> (i64, String) {
    let error = &answer["error"];
    let code = error["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"));
    (code, error["message"].as_str().unwrap().to_owned())
}

/// Returns the text of a result with one text block.
pub(crate) fn text(result: &Value) -> String {
    match &result["content"].as_array().unwrap()[..] {
        [block] if block["type"] == "text" => block["text"].as_str().unwrap().to_owned(),
        other => panic!("expected one block of text: {other:?}"),
    }
}

/// Returns the text of an error result.
pub(crate) fn failure(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    text(result)
}

/// Passes one message to [`Service::handle_json`], in its own runtime.
pub(crate) fn one_shot(service: &Service, message: &Value) -> Option<Value> {
    runtime(Clock::Paused).block_on(handled(service, message))
}

/// Passes one message to [`Service::handle_json`].
pub(crate) async fn handled(service: &Service, message: &Value) -> Option<Value> {
    let answer = service.handle_json(message.to_string().as_bytes()).await?;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let stateless =
        message.pointer("/params/_meta").is_some_and(|meta| meta.get(key::PROTOCOL_VERSION).is_some());
    let revision = if stateless { STATELESS } else { Revision::LATEST_SESSION };
    match message["method"].as_str() {
        Some(method) if answer.get("id") == message.get("id") => {
            schema::check_answer(revision, method, &answer);
        }
        _ => schema::check_unsolicited(Revision::ALL[0], &answer),
    }
    Some(answer)
}
