//! Building blocks of the MCP endpoint for other HTTP services: supervised connections, host and origin checks, bodies
//! with a maximum size, and JSON without ambiguities.

pub use linchpin_jsonrpc::{Limits, ParseError, ParseErrorKind, check as check_json};

#[cfg(feature = "tls")]
pub use super::http::Tls;
pub use super::http::{
    BodyReadError, BodyReader, ConnectionAddresses, Listener, OriginError, OriginGuard, ReadBody,
    client_network,
};

/// Decodes the fields of a form or query, in order.
#[cfg(feature = "auth")]
pub fn decode_form(
    form: &str,
) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
    crate::auth::form_urlencoded::decode(form)
}
