//! HTTP parts shared by clients and servers: header names, header values and event streams.
//!
//! This module opens no sockets and knows no sessions. `header_annotation` is also used without HTTP, since tools
//! are defined in the same way for every transport.

#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod fuzzing;
pub(crate) mod header_annotation;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod header_names;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod header_value;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod param_headers;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) mod sse;

/// Decodes a JSON string literal.
pub(crate) fn decode_string(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    match json.strip_prefix('"')?.strip_suffix('"')? {
        plain if !plain.contains('\\') => Some(plain.into()),
        _ => serde_json::from_str::<String>(json).ok().map(Into::into),
    }
}
