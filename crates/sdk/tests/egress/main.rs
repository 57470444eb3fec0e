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
#[path = "../support/private_address_forms.rs"]
mod private_address_forms;
mod proxy;
mod redirects;
mod support;
#[cfg(feature = "tls")]
mod tls;
