//! `DPoP` proofs of the client (RFC 9449): a token bound to a key is useless to a thief.

use http::HeaderName;
use serde_json::json;

use super::pkce::random_text;
use crate::auth::error::AuthError;
use crate::jose::{SigningKey, digest};

/// Request header that contains the `DPoP` proof.
pub(crate) const PROOF_HEADER: HeaderName = HeaderName::from_static("dpop");
/// Response header with the nonce that the next proof must contain.
pub(in crate::auth) const NONCE_HEADER: HeaderName = HeaderName::from_static("dpop-nonce");

/// Creates a proof of possession for one request.
pub(in crate::auth) fn proof(
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
