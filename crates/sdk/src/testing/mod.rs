//! For tests of servers and clients: every revision and transport at once, scripted peers, records of what was
//! said, and lines that lose, change and delay messages.
//!
//! | to test | use |
//! |---|---|
//! | a server, by a client, in all that both speak | [`matrix()`] |
//! | a server, by messages of your own | [`RawClient`] |
//! | a client, by a server that does as it is told | [`Script`] |
//! | what is said on the wire | [`Transcript`] |
//! | that nothing hangs when messages get lost | [`Faults`] |
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
mod between;
pub mod faults;
mod matrix;
mod random;
mod raw_client;
mod reaction;
mod script;
#[cfg(all(feature = "http-client", feature = "http-server"))]
mod site;
mod stage;
mod streams;
mod transcript;

pub use faults::{FaultRates, Faults};
pub use matrix::{Case, Rounds, Verdict, Way, matrix};
pub use random::Random;
pub use raw_client::RawClient;
pub use reaction::Reaction;
pub use script::Script;
pub use streams::{Streams, piped};
pub use transcript::Transcript;

use crate::Service;
pub use crate::transport::Direction;
use crate::transport::Transport;
use crate::transport::memory::Memory;

/// The way to a server in this process, to be wrapped by another transport.
pub fn in_memory(service: &Service) -> impl Transport + use<> {
    Memory(service.clone())
}
