//! Classification of the client's outgoing messages, and the HTTP headers that mirror them.

use std::borrow::Cow;

use ::http::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id, Limits, Message, Params, parse};
use linchpin_protocol::model::key;
use linchpin_protocol::{Era, Method, Revision};

use super::errors;
use super::state::HttpState;
use super::tool_headers::ToolHeaderMap;
use crate::http::{decode_string, header_names, header_value};

/// Limits of the JSON in outgoing messages. They are high, since the client wrote them itself.
const MESSAGE_LIMITS: Limits = Limits { depth: 128, keys: 1_000_000, values: 10_000_000 };
/// Maximum size of the mirrored headers of one request in bytes.
const MAX_MIRRORED_HEADER_BYTES: usize = 16 << 10;

/// Message of the client, classified for sending it over HTTP.
pub(super) enum OutgoingMessage {
    Request(Box<OutgoingRequest>),
    /// Cancellation of the request with this id.
    Cancel(Id<'static>),
    /// A message without a response.
    Other {
        method: Option<Method>,
    },
    /// A message that cannot be sent.
    Invalid(Option<Id<'static>>, CallError),
}

/// MCP request of the client as an HTTP request: body line, mirrored headers, and session.
pub(super) struct OutgoingRequest {
    pub(super) id: Id<'static>,
    pub(super) method: Cow<'static, str>,
    pub(super) line: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) era: Era,
    /// Number of the session that the request belongs to, if any.
    pub(super) session: Option<u64>,
}

impl OutgoingRequest {
    pub(super) fn is_method(&self, method: Method) -> bool {
        self.method == method.name()
    }
}

/// Classifies a message, and builds the headers of a request.
pub(super) fn classify(
    line: &Bytes,
    revision: Option<Revision>,
    state: &mut HttpState,
    mirrors: &ToolHeaderMap,
) -> OutgoingMessage {
    if let Some(revision) = revision
        && let Some((id, tool)) = parse_plain_call(line)
        && mirrors.find(tool).is_none()
        && let Some(request) = plain_request(id, tool, line, revision, state)
    {
        return OutgoingMessage::Request(Box::new(request));
    }
    match parse(line, MESSAGE_LIMITS) {
        Ok(Message::Request { id, method, params }) => {
            let id = id.into_owned();
            match request(&id, &method, &params, line, revision, state, mirrors) {
                Ok(request) => OutgoingMessage::Request(Box::new(request)),
                Err(error) => OutgoingMessage::Invalid(Some(id), error),
            }
        }
        Ok(Message::Notification { method, params }) => match Method::find(&method) {
            Some(Method::Cancelled) => match cancelled_id(&params) {
                Some(id) => OutgoingMessage::Cancel(id),
                None => OutgoingMessage::Other { method: Some(Method::Cancelled) },
            },
            method => OutgoingMessage::Other { method },
        },
        Ok(Message::Response { .. } | Message::Batch(_)) => OutgoingMessage::Other { method: None },
        Err(error) => {
            let reason = format!("invalid message: {error}");
            OutgoingMessage::Invalid(error.id, errors::bad_request(&reason))
        }
    }
}

/// Returns id and tool of a `tools/call` request that has exactly the form that this client writes. Most messages have
/// this form and need no parsing.
fn parse_plain_call(line: &[u8]) -> Option<(i64, &str)> {
    let rest = line.strip_prefix(br#"{"jsonrpc":"2.0","id":"#)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let id = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(br#","method":"tools/call","params":{"name":""#)?;
    let end = memchr::memchr2(b'"', b'\\', rest).filter(|end| rest[*end] == b'"')?;
    Some((id, std::str::from_utf8(&rest[..end]).ok()?))
}

/// Builds a call that mirrors only the tool name in headers.
fn plain_request(
    id: i64,
    tool: &str,
    line: &Bytes,
    revision: Revision,
    state: &mut HttpState,
) -> Option<OutgoingRequest> {
    let mut headers = state.headers(revision);
    let session = headers.contains_key(header_names::SESSION_ID).then_some(state.generation);
    if revision.era() == Era::Stateless {
        let name = HeaderValue::from_str(&header_value::encode(tool))
            .ok()
            .filter(|name| name.len() <= MAX_MIRRORED_HEADER_BYTES)?;
        headers.insert(header_names::METHOD, HeaderValue::from_static(Method::CallTool.name()));
        headers.insert(header_names::NAME, name);
    }
    let method = Cow::Borrowed(Method::CallTool.name());
    Some(OutgoingRequest {
        id: Id::Number(id),
        method,
        line: line.clone(),
        headers,
        era: revision.era(),
        session,
    })
}

fn cancelled_id(params: &Params<'_>) -> Option<Id<'static>> {
    serde_json::from_str(params.find("requestId")?).ok()
}

fn request(
    id: &Id<'static>,
    method: &str,
    params: &Params<'_>,
    line: &Bytes,
    negotiated: Option<Revision>,
    state: &mut HttpState,
    mirrors: &ToolHeaderMap,
) -> Result<OutgoingRequest, CallError> {
    let known_method = Method::find(method);
    let declared = || declared_revision(params);
    let (headers, revision) = match negotiated {
        // `initialize` must not have a session id.
        _ if known_method == Some(Method::Initialize) => (state.initial_headers(None), None),
        Some(negotiated) => (state.headers(negotiated), Some(negotiated)),
        None => (state.initial_headers(declared()), declared()),
    };
    let era = revision.map_or(Era::Session, Revision::era);
    let session = headers.contains_key(header_names::SESSION_ID).then_some(state.generation);
    let name = known_method
        .map_or_else(|| Cow::Owned(method.to_owned()), |known_method| Cow::Borrowed(known_method.name()));
    let mut request =
        OutgoingRequest { id: id.clone(), method: name, line: line.clone(), headers, era, session };
    if era == Era::Stateless {
        add_mirrored_headers(&mut request, known_method, params, mirrors)?;
    }
    Ok(request)
}

/// Returns the protocol revision in the `_meta` of a request.
fn declared_revision(params: &Params<'_>) -> Option<Revision> {
    let meta = Params::parse(params.find("_meta")?, MESSAGE_LIMITS).ok()?;
    Revision::find(meta.find(key::PROTOCOL_VERSION)?.trim_matches('"'))
}

/// Adds the headers that mirror the method, name and parameters of a message.
fn add_mirrored_headers(
    request: &mut OutgoingRequest,
    known_method: Option<Method>,
    params: &Params<'_>,
    mirrors: &ToolHeaderMap,
) -> Result<(), CallError> {
    let not_a_header = |field: &str| {
        errors::bad_request(&format!(
            "the {field} of the request has characters that are not allowed in a header"
        ))
    };
    let method = match known_method {
        Some(method) => HeaderValue::from_static(method.name()),
        None => HeaderValue::from_str(&request.method).map_err(|_| not_a_header("method"))?,
    };
    request.headers.insert(header_names::METHOD, method);
    let Some(source) = known_method.and_then(Method::name_parameter) else { return Ok(()) };
    let Some(name) = params.find(source).and_then(decode_string) else { return Ok(()) };
    let value = HeaderValue::from_str(&header_value::encode(&name)).map_err(|_| not_a_header(source))?;
    let mut size = value.len();
    request.headers.insert(header_names::NAME, value);
    if known_method == Some(Method::CallTool)
        && let Some(mirror) = mirrors.find(&name)
    {
        for (name, value) in mirror.headers(params.find("arguments").unwrap_or("{}")) {
            size += name.as_str().len() + value.len() + 4;
            request.headers.insert(name, value);
        }
    }
    if size > MAX_MIRRORED_HEADER_BYTES {
        let reason =
            format!("the mirrored headers have {size} bytes, and {MAX_MIRRORED_HEADER_BYTES} are allowed");
        return Err(errors::bad_request(&reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;

    use super::*;

    #[test]
    fn plain_calls_are_known_by_sight() {
        let line =
            br#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"a b","arguments":{}}}"#;
        assert_eq!(parse_plain_call(line), Some((42, "a b")));
        for other in [
            r#"{"jsonrpc":"2.0","id":"42","method":"tools/call","params":{"name":"a","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"a\"b","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/list","params":{"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"arguments":{},"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":42"#,
        ] {
            assert_eq!(parse_plain_call(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_plain_call_is_the_same_as_any_other() {
        let plain =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grün","arguments":{}}}"#;
        let turned =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"name":"grün"}}"#;
        for revision in [Revision::LATEST, Revision::LATEST_SESSION] {
            let mut state = HttpState::new(&HeaderMap::new());
            state.set_session(Some(HeaderValue::from_static("x")));
            let [plain, turned] = [plain, turned].map(|line| {
                match classify(
                    &Bytes::from_static(line.as_bytes()),
                    Some(revision),
                    &mut state,
                    &ToolHeaderMap::default(),
                ) {
                    OutgoingMessage::Request(request) => request,
                    _ => panic!("{line} is a request"),
                }
            });
            assert_eq!(plain.headers, turned.headers);
            assert_eq!((&plain.id, &plain.method), (&turned.id, &turned.method));
            assert_eq!((plain.era, plain.session), (turned.era, turned.session));
        }
    }
}
