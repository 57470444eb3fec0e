//! Workloads: how each kind of request is written, and which response is correct. This module knows nothing about the
//! transport.

use std::{cell::Cell, io::Write, rc::Rc};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::options::{Options, Protocol};

/// `_meta` that the 2026-07-28 revision requires in the params of every request.
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"mcp-load","version":"0"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

pub const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"mcp-load","version":"0"}}}"#
);

/// Kind of request, sent repeatedly with a new id.
#[derive(Clone)]
pub enum Workload {
    /// Text after the id in the message, already escaped for JSON.
    Echo(Rc<String>),
    Add,
    /// Length of the last list whose tools were counted; a list of the same length is not counted again.
    List(Rc<Cell<usize>>),
    Ping,
}

#[derive(Debug, PartialEq)]
pub enum ResponseCheck {
    Good,
    Bad(&'static str),
    /// Response to another request.
    Other(u64),
    /// Not a response.
    NotMine,
}

impl Workload {
    /// Parses `echo:SIZE`, `add`, `list` or `ping`.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split_once(':') {
            Some(("echo", size)) => Some(Self::Echo(Rc::new(filler(size.parse().ok()?)))),
            Some(_) => None,
            None => match name {
                "add" => Some(Self::Add),
                "list" => Some(Self::List(Rc::default())),
                "ping" => Some(Self::Ping),
                _ => None,
            },
        }
    }

    /// Returns the method and, for a tool call, the tool.
    pub fn method(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Echo(_) => ("tools/call", Some("echo")),
            Self::Add => ("tools/call", Some("add")),
            Self::List(_) => ("tools/list", None),
            Self::Ping => ("ping", None),
        }
    }

    /// Appends request `id` to `out`, without framing.
    pub fn write(&self, id: u64, protocol: Protocol, out: &mut Vec<u8>) {
        let meta = if protocol == Protocol::V2026 { META } else { "" };
        let comma = if meta.is_empty() { "" } else { "," };
        let (method, tool) = self.method();
        let _ = write!(out, r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}""#);
        if let Some(tool) = tool {
            let _ = write!(out, r#","params":{{{meta}{comma}"name":"{tool}","arguments":{{"#);
        }
        let _ = match self {
            Self::Echo(filler) => write!(out, r#""message":"{id:08x}{filler}"}}}}}}"#),
            Self::Add => write!(out, r#""a":{id},"b":1}}}}}}"#),
            Self::Ping if meta.is_empty() => write!(out, "}}"),
            Self::List(_) | Self::Ping => write!(out, r#","params":{{{meta}}}}}"#),
        };
    }

    /// Checks whether `message` is the correct response to request `id`.
    pub fn check(&self, message: &[u8], id: u64, options: &Options) -> ResponseCheck {
        #[derive(Deserialize)]
        struct ResponseEnvelope<'a> {
            id: Option<u64>,
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let Ok(answer) = serde_json::from_slice::<ResponseEnvelope>(message) else {
            return ResponseCheck::Bad("not JSON");
        };
        match answer.id {
            None => return ResponseCheck::NotMine,
            Some(other) if other != id => return ResponseCheck::Other(other),
            Some(_) => {}
        }
        if answer.error.is_some() {
            return ResponseCheck::Bad("JSON-RPC error");
        }
        let Some(result) = answer.result else { return ResponseCheck::NotMine };
        if !options.full || self.is_right(result.get(), id, options.tools) {
            ResponseCheck::Good
        } else {
            ResponseCheck::Bad("wrong content")
        }
    }

    fn is_right(&self, result: &str, id: u64, tools: usize) -> bool {
        let parsed = || serde_json::from_str::<Value>(result).unwrap_or_default();
        match self {
            Self::Ping => true,
            Self::Echo(filler) => {
                // Most servers escape as this program does; then no parsing is needed.
                let expected = format!("{id:08x}");
                let verbatim = memchr::memmem::find_iter(result.as_bytes(), b"\"text\"").any(|at| {
                    let text = result[at + 6..].trim_start_matches([':', ' ']);
                    text.strip_prefix('"')
                        .and_then(|text| text.strip_prefix(expected.as_str()))
                        .and_then(|text| text.strip_prefix(filler.as_str()))
                        .is_some_and(|text| text.starts_with('"'))
                });
                verbatim || {
                    let expected: Option<Value> =
                        serde_json::from_str(&format!("\"{expected}{filler}\"")).ok();
                    parsed()["content"].get(0).and_then(|content| content.get("text")) == expected.as_ref()
                }
            }
            Self::Add => {
                let result = parsed();
                let sum = result["structuredContent"].as_object().and_then(|object| object.values().next());
                sum.and_then(Value::as_f64) == Some(id as f64 + 1.0)
            }
            Self::List(length) => {
                if length.get() == result.len() {
                    return true;
                }
                let count = parsed()["tools"].as_array().map(Vec::len);
                if count != Some(tools) {
                    eprintln!("tools/list has {count:?} tools, expected {tools}");
                    return false;
                }
                length.set(result.len());
                true
            }
        }
    }
}

/// Returns text that resembles a source file: lines of 79 characters and a newline, which JSON escapes. Below 128 bytes
/// it has no newlines. The id takes the first eight bytes of the message.
fn filler(size: usize) -> String {
    let mut text = String::with_capacity(size + size / 40);
    for i in 0..size.saturating_sub(8) {
        if size >= 128 && i % 80 == 79 {
            text.push_str("\\n");
        } else {
            text.push((b'a' + (i % 23) as u8) as char);
        }
    }
    text
}
