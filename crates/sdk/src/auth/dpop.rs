//! Tokens that are bound to a key (RFC 9449): whoever steals one cannot use it.

use http::HeaderName;
use serde_json::json;

use super::error::AuthError;
use super::pkce::random_text;
use crate::jose::{SigningKey, digest};

/// Where the proof stands in a request, and where an answer says what the next one must hold.
pub(crate) const PROOF: HeaderName = HeaderName::from_static("dpop");
pub(super) const NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

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
        claims["ath"] = json!(digest(token));
    }
    if let Some(nonce) = nonce {
        claims["nonce"] = json!(nonce);
    }
    Ok(key.sign(&header, &claims)?)
}
