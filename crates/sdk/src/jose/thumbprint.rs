//! JWK thumbprint (RFC 7638): identical for the same key, regardless of how its JWK is written.

use serde_json::Value;

use super::digest;
use super::error::JoseError;

/// Returns the SHA-256 thumbprint of a JWK, as base64url.
pub(crate) fn thumbprint(jwk: &Value) -> Result<String, JoseError> {
    let text = |name: &str| {
        let member = jwk.get(name).and_then(Value::as_str);
        member.ok_or_else(|| JoseError::new(format!("the key has no {name}")))
    };
    let kind = text("kty")?;
    // RFC 7638 requires lexicographic order.
    let members: &[&str] = match kind {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return Err(JoseError::new("the key type is not supported")),
    };
    let mut pairs = Vec::with_capacity(members.len());
    for name in members {
        pairs.push(format!("\"{name}\":{}", Value::from(text(name)?)));
    }
    let canonical = format!("{{{}}}", pairs.join(","));
    Ok(digest(canonical))
}
