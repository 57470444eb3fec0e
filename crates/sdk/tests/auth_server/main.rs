//! Servers that require authentication: tokens, challenges, scopes, proofs, keys, and session ownership.

#![cfg(feature = "auth")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod challenges;
mod dpop;
#[path = "../support/http.rs"]
mod http_script;
mod issuer;
mod keys;
mod logs;
mod metadata;
mod opaque;
mod scopes;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
