//! Outgoing HTTP connections under an egress policy. No other module of this crate connects to the network.
//!
//! ```text
//! Target ─► pool ─► dial: resolve ─► policy ─► connect ─► TLS ─► HTTP/1.1
//!           a pooled connection skips the rest
//! ```
//!
//! A [`Target`] knows the source of its URL: a URL configured by a user may lead to private networks and to this
//! machine, a URL discovered on the network may not. The [`Policy`] checks the exact address that is dialled next,
//! so that a name cannot resolve to something else in between. This module knows nothing of MCP;
//! `docs/design/egress.md` gives the reasons for its design.

mod address_class;
mod body;
mod builder;
mod connect_step;
mod denials;
mod dial;
mod error;
mod policy;
mod pool;
mod proxy;
mod redirect;
mod resolver;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;

pub use address_class::AddressClass;
pub use body::{Body, ResponseBody};
pub use builder::EgressBuilder;
pub use connect_step::{ConnectPhase, ConnectStep};
pub use denials::Denial;
pub(crate) use denials::host_of;
pub use error::{EgressError, EgressErrorKind};
pub use policy::{Network, Policy, PolicyViolation, UrlSource};
pub use pool::Egress;
pub use redirect::Redirects;
pub use resolver::Resolver;
pub use target::Target;

/// Boxed future that can be sent between threads.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
