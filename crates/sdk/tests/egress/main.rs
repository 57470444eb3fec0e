//! Egress: policy, connections and error messages.

#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod addresses;
#[path = "../support/canary.rs"]
mod canary;
mod denied;
mod dns;
mod failures;
mod pool;
mod proxy;
mod redirects;
#[path = "../support/spellings.rs"]
mod spellings;
mod support;
#[cfg(feature = "tls")]
mod tls;
