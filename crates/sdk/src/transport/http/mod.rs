//! HTTP client transport: Streamable HTTP in every revision, and HTTP+SSE.
//!
//! Each message is a separate POST, each request runs on its own task, and responses are passed on where they are
//! read. The transport also handles sessions, the resumption of cut streams, and the headers that mirror a message.

mod authorize;
mod body;
mod connection;
mod errors;
mod event_stream;
mod legacy_sse;
mod listen_stream;
mod message;
mod options;
mod response;
mod send;
mod send_queue;
mod session_renewal;
mod state;
mod tool_headers;

pub(crate) use options::validate_header;
pub use options::{HeadersRequest, HttpTransport};
