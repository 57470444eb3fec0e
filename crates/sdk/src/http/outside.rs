//! The parsers of this folder for the fuzz targets, which stand outside of the crate.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::mirror::Mirror;
use super::sse::{Event, Fault, Parser};
use super::{names, sentinel};

/// What came of a stream of events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Id, whether it is the event's own, type and data.
    pub events: Vec<(Option<String>, bool, String, String)>,
    /// The id to resume from.
    pub last_id: Option<String>,
    /// How long to wait before connecting again.
    pub retry: Option<std::time::Duration>,
    /// Whether the stream ended because of its size, or because of its bytes.
    pub fault: Option<bool>,
}

/// Reads a stream that arrives in chunks.
pub fn read_events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, max_event: usize) -> Events {
    let mut parser = Parser::new(max_event);
    let mut seen = Events::default();
    for chunk in chunks {
        let outcome = parser.feed(chunk, |Event { id, has_id, event, data }| {
            seen.events.push((id.map(str::to_owned), has_id, event.to_owned(), data.to_owned()));
        });
        seen.fault = outcome.err().map(|fault| fault == Fault::TooLarge);
    }
    seen.last_id = parser.last_event_id().map(str::to_owned);
    seen.retry = parser.retry();
    seen
}

/// A text as a header value.
pub fn encode_header(text: &str) -> String {
    sentinel::encode(text).into_owned()
}

/// The text of a header value.
pub fn decode_header(value: &[u8]) -> Option<String> {
    sentinel::decode(value).map(std::borrow::Cow::into_owned)
}

/// What mirroring makes of a call.
pub struct Mirrored {
    /// The headers that a client sends.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What a server says of them.
    pub checked: Result<(), String>,
}

/// The headers of a call.
pub fn mirrored(schema: &Value, arguments: &str) -> Result<Mirrored, String> {
    let mirror = Mirror::of(schema)?;
    let headers = mirror.headers(arguments);
    let checked = mirror.check(arguments, &headers.iter().cloned().collect::<HeaderMap>());
    Ok(Mirrored { headers, checked })
}

/// Whether a name is that of a mirrored parameter.
pub fn is_mirrored(name: &HeaderName) -> bool {
    name.as_str().starts_with(names::PARAM_PREFIX)
}
