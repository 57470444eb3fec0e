//! Entry points to the SSE and header parsers for the fuzz targets, which are outside the crate.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::param_headers::ParamHeaders;
use super::sse::{SseError, SseEvent, SseParser};
use super::{header_names, header_value};

/// Result of parsing a fuzzed SSE stream: its events, and the final state of the parser.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Parsed events: id, whether the event itself set it, type and data.
    pub events: Vec<(Option<String>, bool, String, String)>,
    /// Event id from which a client would resume the stream.
    pub last_id: Option<String>,
    /// Reconnection delay that the server requested.
    pub retry: Option<std::time::Duration>,
    /// Why parsing the SSE stream failed: `true` for size, `false` for invalid bytes.
    pub fault: Option<bool>,
}

/// Parses an event stream that arrives in chunks.
pub fn read_events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, max_event: usize) -> Events {
    let mut parser = SseParser::new(max_event);
    let mut parsed = Events::default();
    for chunk in chunks {
        let outcome = parser.feed(chunk, |SseEvent { id, has_id, event, data }| {
            parsed.events.push((id.map(str::to_owned), has_id, event.to_owned(), data.to_owned()));
        });
        parsed.fault = outcome.err().map(|fault| fault == SseError::TooLarge);
    }
    parsed.last_id = parser.last_event_id().map(str::to_owned);
    parsed.retry = parser.retry();
    parsed
}

/// Encodes a name or parameter as the text of the HTTP header value that mirrors it.
pub fn encode_header(text: &str) -> String {
    header_value::encode(text).into_owned()
}

/// Decodes the text of a header value that mirrors a name or parameter.
pub fn decode_header(value: &[u8]) -> Option<String> {
    header_value::decode(value).map(std::borrow::Cow::into_owned)
}

/// `Mcp-Param-*` headers that a client sends for fuzzed arguments, and the outcome of the server's check.
pub struct ParamHeaderCheck {
    /// Headers that a client sends for the call.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Outcome of the server's check of these headers.
    pub checked: Result<(), String>,
}

/// Builds the headers that mirror the parameters of a call, and checks them against the same call.
pub fn param_headers(schema: &Value, arguments: &str) -> Result<ParamHeaderCheck, String> {
    let mirror = ParamHeaders::from_schema(schema)?;
    let headers = mirror.headers(arguments);
    let checked = mirror.check(arguments, &headers.iter().cloned().collect::<HeaderMap>());
    Ok(ParamHeaderCheck { headers, checked })
}

/// Returns whether a header mirrors a tool parameter (`Mcp-Param-…`).
pub fn is_param_header(name: &HeaderName) -> bool {
    name.as_str().starts_with(header_names::PARAM_PREFIX)
}
