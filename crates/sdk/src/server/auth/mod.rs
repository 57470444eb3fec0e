//! A server that wants to know who asks: an OAuth 2.1 resource server (RFC 6750, 8707, 9068, 9449, 9728).
//!
//! ```text
//! request ─► credentials ─► cache ─► jwt ─► keys ─► fetch     (or a function that knows opaque tokens)
//!               │             └──────┴─► Identity ─► proof (DPoP) ─► the endpoint
//!               └─► challenge, when something is wrong
//! ```
//!
//! It knows nothing of the protocol and of sessions: the endpoint asks who sends a request, gets an
//! [`Identity`](super::Identity) or a [`Rejection`], and asks again once it knows what the request wants. Tokens are
//! looked at and forgotten; `docs/design/authorization-server.md` says why it is as it is.

mod builder;
mod cache;
mod challenge;
mod credentials;
mod fetch;
mod jwt;
mod keys;
mod metadata;
mod proof;
mod replay;
mod resource;

#[cfg(test)]
mod tests;

pub use builder::{Auth, Dpop};
pub(crate) use challenge::Rejection;
pub(crate) use resource::Resource;

/// Why a token is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    /// What is wrong with it. Whoever sent it may read this.
    Token(std::borrow::Cow<'static, str>),
    /// Nobody can tell now.
    Unavailable,
}

impl Refused {
    fn token(text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Refused::Token(text.into())
    }
}
