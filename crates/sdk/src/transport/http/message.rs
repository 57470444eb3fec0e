//! Classification of outgoing messages, and the headers that mirror them.

use std::borrow::Cow;

use ::http::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id, Limits, Message, Params, parse};
use linchpin_protocol::model::key;
use linchpin_protocol::{Era, Method, Revision};

use super::errors;
use super::state::State;
use super::tool_headers::Mirrors;
use crate::http::{header_names, header_value, text};

/// Limits of outgoing messages. They are high, since the client wrote them itself.
const LIMITS: Limits = Limits { depth: 128, keys: 1_000_000, values: 10_000_000 };
/// Maximum size of the mirrored headers of one request in bytes.
const MAX_HEADERS: usize = 16 << 10;

/// An outgoing message.
pub(super) enum Outgoing {
    Request(Box<Request>),
    /// Cancels a request.
    Cancel(Id<'static>),
    /// A message without a response.
    Other {
        method: Option<Method>,
    },
    /// A message that cannot be sent.
    Unfit(Option<Id<'static>>, CallError),
}

/// An outgoing request.
pub(super) struct Request {
    pub(super) id: Id<'static>,
    pub(super) method: Cow<'static, str>,
    pub(super) line: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) era: Era,
    /// Number of the session it belongs to, if any.
    pub(super) session: Option<u64>,
}

impl Request {
    pub(super) fn is(&self, method: Method) -> bool {
        self.method == method.name()
    }
}

/// Classifies a message, and builds the headers of a request.
pub(super) fn read(line: &Bytes, agreed: Option<Revision>, state: &mut State, mirrors: &Mirrors) -> Outgoing {
    if let Some(agreed) = agreed
        && let Some((id, tool)) = plain_call(line)
        && mirrors.find(tool).is_none()
        && let Some(request) = call(id, tool, line, agreed, state)
    {
        return Outgoing::Request(Box::new(request));
    }
    match parse(line, LIMITS) {
        Ok(Message::Request { id, method, params }) => {
            let id = id.into_owned();
            match request(&id, &method, &params, line, agreed, state, mirrors) {
                Ok(request) => Outgoing::Request(Box::new(request)),
                Err(error) => Outgoing::Unfit(Some(id), error),
            }
        }
        Ok(Message::Notification { method, params }) => match Method::find(&method) {
            Some(Method::Cancelled) => match cancelled(&params) {
                Some(id) => Outgoing::Cancel(id),
                None => Outgoing::Other { method: Some(Method::Cancelled) },
            },
            method => Outgoing::Other { method },
        },
        Ok(Message::Response { .. } | Message::Batch(_)) => Outgoing::Other { method: None },
        Err(error) => {
            let reason = format!("invalid message: {error}");
            Outgoing::Unfit(error.id, errors::bad_request(&reason))
        }
    }
}

/// Returns id and tool of a call in the form that this client writes. Most messages have this form and need no
/// parsing.
fn plain_call(line: &[u8]) -> Option<(i64, &str)> {
    let rest = line.strip_prefix(br#"{"jsonrpc":"2.0","id":"#)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let id = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(br#","method":"tools/call","params":{"name":""#)?;
    let end = memchr::memchr2(b'"', b'\\', rest).filter(|end| rest[*end] == b'"')?;
    Some((id, std::str::from_utf8(&rest[..end]).ok()?))
}

/// Builds a call that mirrors only the tool name in headers.
fn call(id: i64, tool: &str, line: &Bytes, agreed: Revision, state: &mut State) -> Option<Request> {
    let mut headers = state.headers(agreed);
    let session = headers.contains_key(header_names::SESSION_ID).then_some(state.generation);
    if agreed.era() == Era::Stateless {
        let name = HeaderValue::from_str(&header_value::encode(tool))
            .ok()
            .filter(|name| name.len() <= MAX_HEADERS)?;
        headers.insert(header_names::METHOD, HeaderValue::from_static(Method::CallTool.name()));
        headers.insert(header_names::NAME, name);
    }
    let method = Cow::Borrowed(Method::CallTool.name());
    Some(Request { id: Id::Number(id), method, line: line.clone(), headers, era: agreed.era(), session })
}

fn cancelled(params: &Params<'_>) -> Option<Id<'static>> {
    serde_json::from_str(params.find("requestId")?).ok()
}

fn request(
    id: &Id<'static>,
    method: &str,
    params: &Params<'_>,
    line: &Bytes,
    agreed: Option<Revision>,
    state: &mut State,
    mirrors: &Mirrors,
) -> Result<Request, CallError> {
    let known = Method::find(method);
    let stated = || stated(params);
    let (headers, revision) = match agreed {
        // `initialize` must not have a session id.
        _ if known == Some(Method::Initialize) => (state.first_headers(None), None),
        Some(agreed) => (state.headers(agreed), Some(agreed)),
        None => (state.first_headers(stated()), stated()),
    };
    let era = revision.map_or(Era::Session, Revision::era);
    let session = headers.contains_key(header_names::SESSION_ID).then_some(state.generation);
    let name = known.map_or_else(|| Cow::Owned(method.to_owned()), |known| Cow::Borrowed(known.name()));
    let mut request = Request { id: id.clone(), method: name, line: line.clone(), headers, era, session };
    if era == Era::Stateless {
        mirror(&mut request, known, params, mirrors)?;
    }
    Ok(request)
}

/// Returns the revision declared in a request.
fn stated(params: &Params<'_>) -> Option<Revision> {
    let meta = Params::parse(params.find("_meta")?, LIMITS).ok()?;
    Revision::find(meta.find(key::PROTOCOL_VERSION)?.trim_matches('"'))
}

/// Adds the headers that mirror the message.
fn mirror(
    request: &mut Request,
    known: Option<Method>,
    params: &Params<'_>,
    mirrors: &Mirrors,
) -> Result<(), CallError> {
    let unfit = |what: &str| errors::bad_request(&format!("the {what} is not valid in a header"));
    let method = match known {
        Some(method) => HeaderValue::from_static(method.name()),
        None => HeaderValue::from_str(&request.method).map_err(|_| unfit("method"))?,
    };
    request.headers.insert(header_names::METHOD, method);
    let Some(source) = known.and_then(Method::named_by) else { return Ok(()) };
    let Some(name) = params.find(source).and_then(text) else { return Ok(()) };
    let value = HeaderValue::from_str(&header_value::encode(&name)).map_err(|_| unfit(source))?;
    let mut size = value.len();
    request.headers.insert(header_names::NAME, value);
    if known == Some(Method::CallTool)
        && let Some(mirror) = mirrors.find(&name)
    {
        for (name, value) in mirror.headers(params.find("arguments").unwrap_or("{}")) {
            size += name.as_str().len() + value.len() + 4;
            request.headers.insert(name, value);
        }
    }
    if size > MAX_HEADERS {
        let reason = format!("the mirrored headers have {size} bytes, and {MAX_HEADERS} are allowed");
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
        assert_eq!(plain_call(line), Some((42, "a b")));
        for other in [
            r#"{"jsonrpc":"2.0","id":"42","method":"tools/call","params":{"name":"a","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"a\"b","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/list","params":{"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"arguments":{},"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":42"#,
        ] {
            assert_eq!(plain_call(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_plain_call_is_the_same_as_any_other() {
        let plain =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grün","arguments":{}}}"#;
        let turned =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"name":"grün"}}"#;
        for agreed in [Revision::LATEST, Revision::LATEST_SESSION] {
            let mut state = State::new(&HeaderMap::new());
            state.set_session(Some(HeaderValue::from_static("x")));
            let [plain, turned] = [plain, turned].map(|line| {
                match read(
                    &Bytes::from_static(line.as_bytes()),
                    Some(agreed),
                    &mut state,
                    &Mirrors::default(),
                ) {
                    Outgoing::Request(request) => request,
                    _ => panic!("{line} is a request"),
                }
            });
            assert_eq!(plain.headers, turned.headers);
            assert_eq!((&plain.id, &plain.method), (&turned.id, &turned.method));
            assert_eq!((plain.era, plain.session), (turned.era, turned.session));
        }
    }
}
