//! Test utilities for servers and clients: all revisions and transports at once, scripted peers, transcripts, and
//! transports that lose, change and delay messages.
//!
//! | to test | use |
//! |---|---|
//! | a server, with a client, in all revisions and transports | [`matrix()`] |
//! | a server, with raw messages | [`RawClient`] |
//! | a client, with a scripted server | [`Script`] |
//! | the messages on the wire | [`Transcript`] |
//! | that nothing hangs when messages are lost | [`Faults`] |
//! | a client that signs in | `authority`, with the feature `auth` |
//!
//! ```
//! use linchpin::testing::{Transcript, matrix};
//! use linchpin::{Server, args};
//! use serde_json::json;
//!
//! #[args] struct Add { a: i64, b: i64 }
//!
//! let server = Server::new("demo", "1").tool("add", "Adds", |Add { a, b }| async move { a + b });
//! let service = server.build().unwrap();
//! matrix(&service, |case| async move {
//!     let transcript = Transcript::new(case.to_server());
//!     let client = case.client_over(transcript.clone()).connect().await?;
//!     let sum = client.call("add", json!({ "a": 1, "b": 2 })).await?;
//!     assert_eq!(sum.content.len(), 1, "{case}\n{transcript}");
//!     client.close().await;
//!     linchpin::Result::<(), linchpin::ClientError>::Ok(())
//! });
//! ```

#[cfg(feature = "auth")]
pub mod authority;
pub mod faults;
#[cfg(all(feature = "http-client", feature = "http-server"))]
mod http_server;
mod interceptor;
mod matrix;
mod random;
mod raw_client;
mod reaction;
mod script;
mod script_connection;
mod streams;
mod transcript;

pub use faults::{FaultRates, Faults};
pub use matrix::{Case, InputMode, TestOutcome, TransportKind, matrix};
pub use random::Random;
pub use raw_client::RawClient;
pub use reaction::Reaction;
pub use script::Script;
pub use streams::{StreamTransport, piped};
pub use transcript::Transcript;

use crate::Service;
pub use crate::transport::Direction;
use crate::transport::Transport;
use crate::transport::memory::Memory;

/// Returns a transport to a server in this process, for wrapping it in another one.
pub fn in_memory(service: &Service) -> impl Transport + use<> {
    Memory(service.clone())
}
