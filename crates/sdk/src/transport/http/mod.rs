//! Servers on the network: Streamable HTTP of every revision, and HTTP+SSE before it.
//!
//! Each message goes out as a POST of its own, each request on a task of its own, and what comes back is handed over
//! where it is read. What the transport knows beyond that: sessions, streams that are taken up again after a cut, and
//! the headers that mirror a message.

mod answer;
mod authorized;
mod body;
mod fault;
mod lane;
mod legacy;
mod link;
mod listen;
mod message;
mod mirrors;
mod options;
mod renew;
mod send;
mod state;
mod stream;

pub(crate) use options::checked;
pub use options::{HeadersRequest, Http};
