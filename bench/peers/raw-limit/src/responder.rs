//! Responder: one borrowed parse of the request, then slices of it are spliced into the response. This module knows
//! nothing about framing and transport.

use std::{
    collections::HashSet,
    io::Write,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Request, parsed in one pass. Of the echoed text only the escaped slice is stored.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
    #[serde(rename = "protocolVersion", default)]
    version: &'a str,
}

#[derive(Deserialize, Default)]
struct Arguments<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    a: f64,
    #[serde(default)]
    b: f64,
}

/// Kind of response that was appended to the output.
#[derive(PartialEq)]
pub enum ResponseKind {
    Reply,
    /// Response to `initialize`; over HTTP it opens a session.
    Initialized,
    /// None: the message was a notification.
    Nothing,
}

/// Server, immutable except for the HTTP sessions.
pub struct App {
    list: String,
    fixed: Option<String>,
    /// Prefix of every result in the revision without handshake; empty in the others.
    head: &'static str,
    pub sse: bool,
    sessions: Mutex<HashSet<u64>>,
    next: AtomicU64,
}

impl App {
    /// Creates a server. With `fixed`, it responds to every call with that many constant bytes instead of the echo.
    /// With `stateless`, it uses the revision without handshake.
    pub fn new(fixed: Option<usize>, sse: bool, stateless: bool) -> Self {
        let text = |length| {
            let text = "x".repeat(length);
            format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#)
        };
        Self {
            list: bench_common::tools_list_result(),
            fixed: fixed.map(text),
            head: if stateless { r#""resultType":"complete","# } else { "" },
            sse,
            sessions: Mutex::default(),
            next: AtomicU64::new(0x1234_5678_9abc_def1),
        }
    }

    /// Appends the response to `out`, without framing.
    pub fn respond(&self, message: &[u8], out: &mut Vec<u8>) -> ResponseKind {
        let Ok(request) = serde_json::from_slice::<Request>(message) else {
            out.extend_from_slice(
                br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
            );
            return ResponseKind::Reply;
        };
        let Some(id) = request.id else { return ResponseKind::Nothing };
        let params = request.params;
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.get().as_bytes());
        out.extend_from_slice(br#","result":"#);
        let mut kind = ResponseKind::Reply;
        match request.method {
            "tools/call" => {
                if let Some(fixed) = &self.fixed {
                    out.extend_from_slice(fixed.as_bytes());
                } else if params.name == "add" {
                    let sum = params.arguments.a + params.arguments.b;
                    let _ = write!(
                        out,
                        r#"{{"content":[{{"type":"text","text":"{{\"sum\":{sum}}}"}}],"structuredContent":{{"sum":{sum}}}}}"#
                    );
                } else {
                    out.push(b'{');
                    out.extend_from_slice(self.head.as_bytes());
                    out.extend_from_slice(br#""content":[{"type":"text","text":"#);
                    out.extend_from_slice(params.arguments.message.map_or("\"\"", RawValue::get).as_bytes());
                    out.extend_from_slice(br#"}],"isError":false}"#);
                }
            }
            "tools/list" => out.extend_from_slice(self.list.as_bytes()),
            "initialize" => {
                let version = if params.version.is_empty() { "2025-11-25" } else { params.version };
                let _ = write!(out, r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"#);
                out.extend_from_slice(br#""serverInfo":{"name":"raw-limit","version":"0"}}"#);
                kind = ResponseKind::Initialized;
            }
            "server/discover" if !self.head.is_empty() => {
                out.push(b'{');
                out.extend_from_slice(self.head.as_bytes());
                out.extend_from_slice(br#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"#);
                out.extend_from_slice(br#""ttlMs":0,"cacheScope":"private"}"#);
            }
            _ => out.extend_from_slice(b"{}"),
        }
        out.push(b'}');
        kind
    }

    /// Appends the response as an HTTP body: plain JSON or one server-sent event.
    pub fn body(&self, message: &[u8], out: &mut Vec<u8>) -> ResponseKind {
        if !self.sse {
            return self.respond(message, out);
        }
        out.extend_from_slice(b"event: message\ndata: ");
        let kind = self.respond(message, out);
        out.extend_from_slice(b"\n\n");
        kind
    }

    pub fn content_type(&self) -> &'static str {
        if self.sse { "text/event-stream" } else { "application/json" }
    }

    /// Opens a session. Its id is guessable: this server is only for benchmarks and never exposed.
    pub fn open_session(&self) -> u64 {
        let session = self.next.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        self.sessions.lock().unwrap().insert(session);
        session
    }

    pub fn knows_session(&self, header: &[u8]) -> bool {
        session_id(header).is_some_and(|session| self.sessions.lock().unwrap().contains(&session))
    }

    pub fn close_session(&self, header: &[u8]) {
        if let Some(session) = session_id(header) {
            self.sessions.lock().unwrap().remove(&session);
        }
    }
}

fn session_id(header: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(header).ok()?, 16).ok()
}
