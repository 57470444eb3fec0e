//! What the endpoint is built on, for services of other kinds over HTTP: connections that are looked after, the hosts
//! and origins that may come in, bodies up to a cap, and JSON that can only be read in one way.

pub use linchpin_jsonrpc::{Limits, ParseError, ParseErrorKind, check as check_json};

#[cfg(feature = "tls")]
pub use super::http::Tls;
pub use super::http::{Addresses, Bodies, Guard, Listener, Stranger, Unread, Whole, client_network};

/// The fields of a form, or of a query, in their order.
#[cfg(feature = "auth")]
pub fn decode_form(
    form: &str,
) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
    crate::auth::form::decode(form)
}
