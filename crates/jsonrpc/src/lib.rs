//! JSON-RPC 2.0, strict and borrowed.
//!
//! Bytes come in through [`LineBuffer`], one line is decoded by [`parse`] in a single pass into a
//! [`Message`] whose parts are slices of that line, and answers are appended to a byte buffer by the
//! functions in [`write`]. [`Outbox`] is the bounded queue of outgoing lines, [`Peer`] matches answers to the
//! requests we sent.
//!
//! What this crate must not know: the protocol spoken on top of it. No method name occurs here.

mod decode;
mod envelope;
mod error;
mod id;
mod keys;
mod line;
mod outbox;
mod params;
mod path;
mod peer;
mod scan;
pub mod string;
pub mod write;

pub use decode::{DecodeError, from_checked};
pub use envelope::{Message, Reply, parse};
pub use error::{ErrorObject, ParseError, ParseErrorKind, code};
pub use id::Id;
pub use line::{Line, LineBuffer};
pub use outbox::{Outbox, Taken};
pub use params::Params;
pub use path::path_at;
pub use peer::{Call, CallError, Patience, Paused, Peer};
pub use scan::{Limits, check};
