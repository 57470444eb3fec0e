//! Servers and clients for every revision of the Model Context Protocol.
//!
//! The smallest complete server has a typed tool, a resource and a prompt, and uses stdio:
//!
//! ```no_run
//! use linchpin::{Server, args};
//!
//! #[args] struct Add { a: i64, b: i64 }
//! #[args] struct Review { language: String }
//!
//! #[tokio::main]
//! async fn main() -> linchpin::Result {
//!     Server::new("demo", "1.0.0")
//!         .tool("add", "Adds two numbers", |Add { a, b }| async move { a + b })
//!         .resource("memory://status", "status", || async { "ok" })
//!         .prompt("review", "Review code", |r: Review| async move { format!("Review this {} code", r.language) })
//!         .run().await
//! }
//! ```
//!
//! Path of a request: a transport splits bytes into messages, `linchpin_jsonrpc` decodes the envelope,
//! `linchpin_protocol::wire` decodes the parameters for the negotiated revision, and `server::request::dispatch` finds the
//! handler. The response takes the same path in reverse.

#![cfg_attr(
    not(feature = "rounds"),
    expect(dead_code, reason = "some items are only used by multi round-trip requests")
)]

#[cfg(feature = "http-client")]
pub mod auth;
pub mod client;
#[cfg(feature = "http-client")]
pub mod egress;
mod error;
pub mod hidden_characters;
mod http;
#[cfg(feature = "http-client")]
mod jose;
mod lock;
pub mod server;
mod server_request;
mod siphash;
#[cfg(feature = "skills")]
mod skills;
pub mod testing;
pub mod transport;

#[doc(hidden)]
pub mod __private;

#[cfg(feature = "validate")]
pub use linchpin_schema as schema;

pub use client::{Client, ClientBuilder, ClientError};
pub use error::{Error, ErrorKind};
pub use linchpin_jsonrpc::{CallError, ErrorObject};
pub use linchpin_macros::{args, prompt, resource, tool};
pub use linchpin_protocol::model::{
    CallToolResult as ToolOutput, Content, LogLevel, PromptMessage, ResourceContents,
};
pub use linchpin_protocol::{Era, Revision, code};
pub use linchpin_protocol::{encode, model};
pub use server::{
    Args, Audio, Context, Identity, Image, IntoPrompt, IntoResource, IntoToolOutput, Json, NoArgs, Progress,
    Prompt, Register, Resource, ResourceTemplate, Server, ServerHandle, Service, State, Tool,
};

#[cfg(feature = "skills")]
pub use server::Skill;
#[cfg(feature = "auth")]
pub use server::{Auth, Dpop};
#[cfg(feature = "http-server")]
pub use server::{BoundEndpoint, HttpEndpoint, HttpService};
#[cfg(feature = "rounds")]
pub use server::{StateKey, StateKeys};

/// Result of a handler or of a server run.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Code blocks of the README and the guide, compiled as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/quickstart.md")]
    mod quickstart {}
    #[doc = include_str!("../../../docs/guide/servers.md")]
    mod servers {}
    #[cfg(feature = "http-server")]
    #[doc = include_str!("../../../docs/guide/http.md")]
    mod http {}
    #[cfg(feature = "http-client")]
    #[doc = include_str!("../../../docs/guide/client-authorization.md")]
    mod client_authorization {}
    #[cfg(feature = "auth")]
    #[doc = include_str!("../../../docs/guide/server-authorization.md")]
    mod server_authorization {}
    #[doc = include_str!("../../../docs/guide/context.md")]
    mod context {}
    #[doc = include_str!("../../../docs/guide/hooks.md")]
    mod hooks {}
    #[doc = include_str!("../../../docs/guide/running.md")]
    mod running {}
    #[doc = include_str!("../../../docs/guide/server-requests.md")]
    mod server_requests {}
    #[doc = include_str!("../../../docs/guide/tasks.md")]
    mod tasks {}
    #[cfg(feature = "skills")]
    #[doc = include_str!("../../../docs/guide/skills.md")]
    mod skills {}
    #[doc = include_str!("../../../docs/guide/composing.md")]
    mod composing {}
    #[doc = include_str!("../../../docs/guide/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/guide/clients.md")]
    mod clients {}
    #[doc = include_str!("../../../docs/guide/inspect-call-doctor.md")]
    mod inspect_call_doctor {}
}
