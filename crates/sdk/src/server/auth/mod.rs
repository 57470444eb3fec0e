//! OAuth 2.1 resource server: verification of access tokens (RFC 6750, 8707, 9068, 9449, 9728).
//!
//! ```text
//! request ─► credentials ─► cache ─► jwt ─► keys ─► fetch     (or a lookup function for opaque tokens)
//!               │             └──────┴─► Identity ─► proof (DPoP) ─► the endpoint
//!               └─► challenge, if the request is rejected
//! ```
//!
//! This module knows nothing about MCP or sessions. The endpoint calls it twice: first to authenticate the sender,
//! which yields an [`ClientIdentity`](super::Identity) or a [`Rejection`], then to check the scopes once the request is
//! parsed. Tokens are verified and not stored; the cache is keyed by digest. `docs/design/authorization-server.md`
//! explains the design.

mod builder;
mod challenge;
mod dpop;
mod issuer_keys;
mod issuer_metadata;
mod jwt;
mod presented_token;
mod protected_resource;
mod replay_cache;
mod resource_metadata;
mod token_cache;

#[cfg(test)]
mod tests;

pub use builder::{Auth, Dpop};
pub(crate) use challenge::Rejection;
pub(crate) use protected_resource::ProtectedResource;

/// Reason why a token is not accepted: it is invalid, or cannot be verified at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TokenError {
    /// The token is invalid, for this reason. The text is sent to the client.
    Invalid(std::borrow::Cow<'static, str>),
    /// The token cannot be verified at the moment, for example because the issuer's keys cannot be fetched.
    Unavailable,
}

impl TokenError {
    fn invalid(text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        TokenError::Invalid(text.into())
    }
}
