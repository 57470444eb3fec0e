//! JWTs of the test authority, signed with ES256, its only algorithm. Independent of the product's implementation,
//! which is tested against this one.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Key pair with which tests sign JWTs.
pub(super) struct TestKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

impl TestKey {
    pub(super) fn generate() -> Result<Self> {
        let failed = |_| Error::setup("failed to generate a key");
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(failed)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        let pair = pair.map_err(|error| Error::setup(error.to_string()))?;
        Ok(TestKey { pair, pkcs8: pkcs8.as_ref().to_vec() })
    }

    /// Returns the private test key as PKCS #8 in PEM.
    pub(super) fn pem(&self) -> String {
        let text = STANDARD.encode(&self.pkcs8);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
    }

    /// Returns the public key as a JWK.
    pub(super) fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) })
    }

    /// Signs a JWT with this type and these claims.
    pub(super) fn sign(&self, kind: &str, claims: &Value) -> Result<String> {
        let header = json!({ "alg": "ES256", "typ": kind });
        let text = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| Error::setup("failed to sign a token"))?;
        Ok(format!("{text}.{}", encode(signature)))
    }
}

/// Parsed JWT of a test, whose signature is not verified yet.
pub(super) struct ParsedToken<'a> {
    text: &'a str,
    signature: Vec<u8>,
    pub(super) header: Value,
    pub(super) claims: Value,
}

impl<'a> ParsedToken<'a> {
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let json = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let (header, claims): (Value, Value) = (json(header)?, json(claims)?);
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(ParsedToken { text, signature, header, claims })
    }

    /// Returns whether the token was signed with the private key of this JWK.
    pub(super) fn is_signed_by(&self, jwk: &Value) -> bool {
        let coordinate = |name: &str| jwk[name].as_str().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let (Some(x), Some(y)) = (coordinate("x"), coordinate("y")) else { return false };
        let point = [&[4], &*x, &*y].concat();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        self.header["alg"] == "ES256" && key.verify(self.text.as_bytes(), &self.signature).is_ok()
    }

    pub(super) fn claim(&self, name: &str) -> &str {
        self.claims[name].as_str().unwrap_or_default()
    }

    /// Returns whether the audience of the token contains one of these.
    pub(super) fn has_audience(&self, audiences: &[&str]) -> bool {
        let is_audience = |value: &Value| value.as_str().is_some_and(|one| audiences.contains(&one));
        match &self.claims["aud"] {
            Value::Array(values) => values.iter().any(is_audience),
            one => is_audience(one),
        }
    }

    /// Returns whether the token has an expiry in the future.
    pub(super) fn is_unexpired(&self, now: u64) -> bool {
        self.claims["exp"].as_u64().is_some_and(|end| now < end)
    }
}

/// Encodes bytes as base64url.
pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the SHA-256 digest of a text as base64url.
pub(super) fn digest(text: &str) -> String {
    encode(Sha256::digest(text))
}

/// Returns the thumbprint of a public key (RFC 7638).
pub(super) fn thumbprint(jwk: &Value) -> String {
    let [curve, kind, x, y] = ["crv", "kty", "x", "y"].map(|name| &jwk[name]);
    digest(&format!(r#"{{"crv":{curve},"kty":{kind},"x":{x},"y":{y}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_key_signs_no_other_has_signed() {
        let (one, other) = (TestKey::generate().unwrap(), TestKey::generate().unwrap());
        let token = one.sign("JWT", &json!({ "aud": ["a", "b"], "exp": 5 })).unwrap();
        let parsed = ParsedToken::parse(&token).unwrap();
        assert!(parsed.is_signed_by(&one.jwk()) && !parsed.is_signed_by(&other.jwk()));
        assert!(parsed.has_audience(&["b", "c"]) && !parsed.has_audience(&["c"]));
        assert!(parsed.is_unexpired(4) && !parsed.is_unexpired(5));
        let changed = format!("{}.{token}", encode("{}"));
        assert!(ParsedToken::parse(&changed).is_none_or(|changed| !changed.is_signed_by(&one.jwk())));
        assert!(ParsedToken::parse("a.b").is_none());
    }

    #[test]
    fn the_thumbprint_of_a_known_key() {
        // The key of RFC 9449, section 4.2, and its thumbprint of section 6.1.
        let jwk = json!({ "kty": "EC", "crv": "P-256",
            "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
            "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA" });
        assert_eq!(thumbprint(&jwk), "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I");
    }
}
