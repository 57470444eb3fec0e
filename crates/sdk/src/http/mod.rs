//! What clients and servers share about HTTP: names of headers, values in them, and event streams.
//!
//! Nothing here opens a socket or knows a session. `annotation` is needed even without HTTP, since a tool is
//! described the same way on every transport.

pub(crate) mod annotation;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod mirror;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod names;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod outside;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod sentinel;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod sse;

/// The text of a JSON string.
pub(crate) fn text(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    match json.strip_prefix('"')?.strip_suffix('"')? {
        plain if !plain.contains('\\') => Some(plain.into()),
        _ => serde_json::from_str::<String>(json).ok().map(Into::into),
    }
}
