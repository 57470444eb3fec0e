//! HTTP client transport: Streamable HTTP in every revision, and HTTP+SSE.
//!
//! Each message is a separate POST, each request runs on its own task, and responses are passed on where they are
//! read. The transport also handles sessions, the resumption of cut streams, and the headers that mirror a message.

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
