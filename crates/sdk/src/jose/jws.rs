//! Parser and verifier of signed tokens in JWS compact serialization (RFC 7515). The parser is strict: input that two
//! parsers could read differently is rejected.

use std::fmt;

use linchpin_jsonrpc::{Limits, check};
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::decode;
use super::error::JoseError;
use super::public_key::PublicKey;

/// Maximum length of a signed token (JWS), in bytes.
const MAX_TOKEN_LEN: usize = 16 << 10;
const JSON_LIMITS: Limits = Limits { depth: 16, keys: 256, values: 2_048 };

/// Parsed token whose signature is not verified yet. `Debug` does not print it.
pub(crate) struct CompactJws<'a> {
    signing_input: &'a str,
    signature: Vec<u8>,
    header: Header,
    claims: Map<String, Value>,
}

/// JOSE header of a signed token: algorithm, key id, type and embedded key. Other members are ignored: a token can
/// never cause a key to be fetched (`jku`, `x5u`).
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// Value of `typ`: the type of the token.
    pub(crate) typ: Option<String>,
    /// A key embedded in the token; it is untrusted on its own.
    pub(crate) jwk: Option<Value>,
}

impl<'a> CompactJws<'a> {
    /// Parses a signed token (JWS) without verifying its signature.
    pub(crate) fn parse(token: &'a str) -> Result<Self, JoseError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(JoseError::new("the token is longer than 16384 bytes"));
        }
        let no_token = || JoseError::new("the token is not a JWT: expected three parts separated by dots");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(no_token)?;
        let (header, claims) = signed.split_once('.').ok_or_else(no_token)?;
        if claims.contains('.') {
            return Err(no_token());
        }
        let header = Header::parse(&parse_object(header, "header")?)?;
        let claims = parse_object(claims, "payload")?;
        let signature = decode(signature).filter(|signature| !signature.is_empty());
        let signature = signature
            .ok_or_else(|| JoseError::new("the signature of the token is empty or not base64url"))?;
        Ok(CompactJws { signing_input: signed, signature, header, claims })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the claims without verification; any sender may have written them.
    pub(crate) fn unverified_claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// Returns the claims if the signature verifies with `key` and its algorithm is in `allowed`.
    pub(crate) fn verify(
        &self,
        key: &PublicKey,
        allowed: &[Algorithm],
    ) -> Result<&Map<String, Value>, JoseError> {
        let algorithm = self.header.algorithm;
        if !allowed.contains(&algorithm) {
            return Err(JoseError::new(format!("the algorithm {algorithm} is not accepted")));
        }
        key.verify(algorithm, self.signing_input.as_bytes(), &self.signature)?;
        Ok(&self.claims)
    }
}

impl Header {
    fn parse(members: &Map<String, Value>) -> Result<Self, JoseError> {
        for refused in ["crit", "b64", "zip"] {
            if members.contains_key(refused) {
                return Err(JoseError::new(format!(
                    "the header of the token has {refused}, which is not accepted"
                )));
            }
        }
        let text = |name: &str| match members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(JoseError::new(format!("{name} in the header of the token must be a string"))),
        };
        let name = text("alg")?.ok_or_else(|| JoseError::new("the header of the token has no alg"))?;
        let algorithm = Algorithm::find(&name).ok_or_else(|| JoseError::unknown_algorithm(&name))?;
        let jwk = members.get("jwk").cloned();
        Ok(Header { algorithm, key_id: text("kid")?, typ: text("typ")?, jwk })
    }
}

/// Parses one part of a token: a JSON object without duplicate keys.
fn parse_object(part: &str, part_name: &str) -> Result<Map<String, Value>, JoseError> {
    let invalid_part = |reason: &str| JoseError::new(format!("the {part_name} of the token {reason}"));
    let bytes = decode(part).ok_or_else(|| invalid_part("is not base64url"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid_part("is not UTF-8"))?;
    check(text, JSON_LIMITS).map_err(|error| match error.kind {
        linchpin_jsonrpc::ParseErrorKind::DuplicateKey => invalid_part("has a duplicate key"),
        linchpin_jsonrpc::ParseErrorKind::Limit => invalid_part("exceeds the JSON limits"),
        _ => invalid_part("is not JSON"),
    })?;
    serde_json::from_str(text).map_err(|_| invalid_part("is not a JSON object"))
}

impl fmt::Debug for CompactJws<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("algorithm", &self.header.algorithm).finish_non_exhaustive()
    }
}
