//! Client authorization: how clients authenticate to servers, and the types that the server side shares.
//!
//! ```text
//! request ─► Authorize::credentials ─► sent ─► 401 or 403 ─► Authorize::on_rejected ─► resent
//!                                                           │
//!               account: one token update at a time; refresh: stored before it is used
//!                  └─ runner: executes the actions of the flow, through the egress module only
//!                       └─ flow: decides the next action, without I/O
//! ```
//!
//! Everything from `flow` down is sans-IO, one standard per file, and is tested without a network.

mod challenge;
mod error;
mod flow;
pub(crate) mod form_urlencoded;
#[doc(hidden)]
pub mod fuzzing;
mod oauth;
mod redirect;
mod scheme;
mod scopes;
mod secret;
mod store;

pub use challenge::Challenge;
pub use error::{AuthError, AuthErrorKind};
#[cfg(feature = "auth")]
pub(crate) use flow::dpop::PROOF_HEADER;
pub use flow::http::Purpose;
pub use flow::private_key::PrivateKey;
#[cfg(feature = "auth")]
pub(crate) use flow::resource_metadata::WELL_KNOWN;
#[cfg(feature = "auth")]
pub(crate) use flow::server_metadata::locations;
pub use http::HeaderMap;
pub use oauth::OAuth;
pub use oauth::identity_provider::IdentityProvider;
pub use oauth::runner::AuthStep;
pub use redirect::RedirectHandler;
pub use redirect::loopback::Loopback;
pub use scheme::{ApiKey, AuthRejection, Authorize, Basic, Bearer, Credentials, Request};
pub use scopes::Scopes;
pub use secret::Secret;
pub use store::file::FileStore;
pub use store::{MemoryStore, TokenStore};

pub use crate::jose::Algorithm;

/// Boxed future that a method of an authorization scheme, redirect handler or token store returns.
pub type AuthFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

fn boxed<'a, T>(work: impl Future<Output = Result<T, AuthError>> + Send + 'a) -> AuthFuture<'a, T> {
    Box::pin(work)
}
