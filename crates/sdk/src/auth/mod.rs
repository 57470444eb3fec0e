//! Client authorization: how clients authenticate to servers, and the types that the server side shares.
//!
//! ```text
//! request ─► Authorize::credentials ─► sent ─► 401 or 403 ─► Authorize::refused ─► resent
//!                                                           │
//!               account: one token update at a time; renew: stored before it is used
//!                  └─ run: executes the actions of the flow, through the egress module only
//!                       └─ flow: decides the next action, without I/O
//! ```
//!
//! Everything from `flow` down is sans-IO, one standard per file, and is tested without a network.

mod account;
mod authorize;
mod away;
mod challenge;
mod discovery;
mod dpop;
mod error;
mod exchange;
mod file_store;
mod flow;
pub(crate) mod form;
mod identity;
mod keep;
mod key;
mod loopback;
mod oauth;
mod oauth_scheme;
mod obtain;
#[doc(hidden)]
pub mod outside;
mod person;
mod pkce;
mod record;
mod refusal;
mod registration;
mod renew;
mod resource_metadata;
mod revocation;
mod run;
mod scheme;
mod scopes;
mod secret;
mod server_metadata;
mod store;
mod token;
mod waits;

pub use challenge::Challenge;
pub use error::{AuthError, AuthErrorKind};
pub use exchange::Purpose;
pub use file_store::FileStore;
pub use http::HeaderMap;
pub use key::PrivateKey;
pub use loopback::Loopback;
pub use oauth::{IdentityProvider, OAuth};
pub use person::Person;
pub use run::AuthStep;
pub use scheme::{ApiKey, Authorize, Basic, Bearer, Credentials, Refusal, Request};
pub use scopes::Scopes;
pub use secret::Secret;
pub use store::{MemoryStore, TokenStore};
#[cfg(feature = "auth")]
pub(crate) use {dpop::PROOF, resource_metadata::WELL_KNOWN, server_metadata::locations};

pub use crate::jose::Algorithm;

/// Boxed future of an authorization operation.
pub type AuthFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

fn boxed<'a, T>(work: impl Future<Output = Result<T, AuthError>> + Send + 'a) -> AuthFuture<'a, T> {
    Box::pin(work)
}
