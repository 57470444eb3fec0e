//! Tokens that are bound to a key (RFC 9449): whoever steals one cannot use it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::error::{AuthError, AuthErrorKind};
use super::pkce::random_text;
use crate::jose::SigningKey;

/// Proves for one request that it comes from whoever has the key.
pub(super) fn proof(
    key: &SigningKey,
    method: &str,
    url: &str,
    token: Option<&str>,
    nonce: Option<&str>,
    now: u64,
) -> Result<String, AuthError> {
    let header = json!({ "typ": "dpop+jwt", "jwk": key.public_jwk() });
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let mut claims = json!({ "jti": random_text().expose(), "htm": method, "htu": url, "iat": now });
    if let Some(token) = token {
        claims["ath"] = json!(URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
    }
    if let Some(nonce) = nonce {
        claims["nonce"] = json!(nonce);
    }
    key.sign(&header, &claims).map_err(|error| AuthError::new(AuthErrorKind::Setup, error.to_string()))
}
