//! Signed tokens and keys (RFC 7515, 7517, 7518, 7638, 8037). This module knows nothing about trust, HTTP or clocks:
//! the caller names the key and the algorithms that a token is verified with.

mod algorithm;
mod error;
mod pem;
mod public;
mod signing;
#[cfg(any(feature = "auth", test))]
mod thumbprint;
mod token;

#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub(crate) use error::JoseError;
pub(crate) use public::PublicKey;
pub(crate) use signing::SigningKey;
#[cfg(any(feature = "auth", test))]
pub(crate) use thumbprint::thumbprint;
pub(crate) use token::Token;

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
