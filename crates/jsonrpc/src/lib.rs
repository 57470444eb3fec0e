//! Strict JSON-RPC 2.0 messages that borrow from their input.
//!
//! [`LineBuffer`] frames input bytes into lines. [`parse`] decodes a line in a single pass into a [`Message`] whose
//! parts are slices of that line. The functions in [`write`] append messages to a byte buffer. [`Outbox`] is the
//! bounded queue of outgoing lines, and [`Peer`] correlates responses with the requests sent.
//!
//! This crate knows nothing about the protocol on top of it: it contains no method names.

mod decode;
mod envelope;
mod error;
mod framing;
mod id;
mod key_set;
mod outbox;
mod params;
mod pause;
mod peer;
mod pointer;
mod scan;
pub mod string;
pub mod write;

pub use decode::{DecodeError, from_checked};
pub use envelope::{Message, ResponsePayload, parse};
pub use error::{ErrorObject, ParseError, ParseErrorKind, code};
pub use framing::{FramedLine, LineBuffer};
pub use id::Id;
pub use outbox::{Outbox, TakeOutcome};
pub use params::Params;
pub use pause::TimeoutPause;
pub use peer::{Call, CallError, Peer, ResponseTimeout};
pub use pointer::path_at;
pub use scan::{Limits, check};
