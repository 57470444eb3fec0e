//! Who asks: how clients sign in to servers, and what both sides of that share.
//!
//! ```text
//! a request ─► Authorize::credentials ─► sent ─► 401 or 403 ─► Authorize::refused ─► sent again
//!                                                             │
//!              account: one at a time; renew: kept before it is used
//!                 └─ run: sends what the flow wants, by the egress module alone
//!                      └─ flow: what to do next, without input or output
//! ```
//!
//! Everything from `flow` down is data in and data out, one standard per file, and is tested without a network.

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

/// Work of signing in, behind a pointer.
pub type AuthFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

fn boxed<'a, T>(work: impl Future<Output = Result<T, AuthError>> + Send + 'a) -> AuthFuture<'a, T> {
    Box::pin(work)
}
