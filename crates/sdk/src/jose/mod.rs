//! Signed tokens: keys, signatures and what a token says (RFC 7515, 7517, 7518, 7638, 8037). It knows nothing of who
//! trusts whom, of HTTP or of clocks: those who ask for a token to be checked say by which key and which algorithms.

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

/// Base64url as tokens have it: without padding.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The SHA-256 digest of a text, as tokens have it.
pub(crate) fn digest(text: impl AsRef<[u8]>) -> String {
    encode(Sha256::digest(text))
}

/// The bytes of a base64url text; `None` for anything that [`encode`] would not have written.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
