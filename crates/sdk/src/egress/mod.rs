//! The way out to servers on the network, and the only place of this crate that opens connections.
//!
//! ```text
//! Target ─► pool ─► dial: look up ─► policy ─► connect ─► TLS ─► HTTP/1.1
//!           a kept connection skips the rest
//! ```
//!
//! A [`Target`] knows where its URL came from: what a person typed may lead to private networks and to this machine,
//! what was learned from the network may not. The [`Policy`] is asked about the very address that is dialled next, so
//! that no name can change its mind in between. It knows nothing of the protocol; `docs/design/egress.md` says why it is
//! as it is.

mod address;
mod body;
mod builder;
mod denied;
mod dial;
mod error;
mod hop;
mod policy;
mod pool;
mod proxy;
mod redirect;
mod resolve;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;

pub use address::Class;
pub use body::{Body, ResponseBody};
pub use builder::Builder;
pub use denied::Denied;
pub(crate) use denied::host_of;
pub use error::{EgressError, EgressErrorKind};
pub use hop::{Hop, Phase};
pub use policy::{Network, Policy, Refusal, Trust};
pub use pool::Egress;
pub use redirect::Redirects;
pub use resolve::Resolve;
pub use target::Target;

/// A future behind a pointer.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
