//! What the endpoint is built on, for services of other kinds over HTTP: connections that are looked after, the hosts
//! and origins that may come in, bodies up to a cap, and JSON that can only be read in one way.

pub use linchpin_jsonrpc::{Limits, ParseError, ParseErrorKind, check as check_json};

#[cfg(feature = "auth")]
pub use crate::auth::form::decode as decode_form;

pub use super::http::{Addresses, Bodies, Guard, Listener, Stranger, Unread, Whole};
