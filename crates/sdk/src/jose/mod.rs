//! Signed tokens and keys (RFC 7515, 7517, 7518, 7638, 8037). This module knows nothing about trust, HTTP or clocks:
//! the caller names the key and the algorithms that a token is verified with.

mod algorithm;
mod error;
mod jws;
mod pem;
mod public_key;
mod signing_key;
#[cfg(any(feature = "auth", test))]
mod thumbprint;

#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub(crate) use error::JoseError;
pub(crate) use jws::CompactJws;
pub(crate) use public_key::PublicKey;
pub(crate) use signing_key::SigningKey;
#[cfg(any(feature = "auth", test))]
pub(crate) use thumbprint::thumbprint;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Encodes bytes as base64url without padding.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the SHA-256 digest of a text, as base64url.
pub(crate) fn digest(text: impl AsRef<[u8]>) -> String {
    encode(Sha256::digest(text))
}

/// Decodes base64url without padding; `None` for input that [`encode`] cannot produce.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
