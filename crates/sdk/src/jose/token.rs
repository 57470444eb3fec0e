//! Tokens in the compact form of RFC 7515, read strictly: what two readers could understand differently is refused.

use std::fmt;

use linchpin_jsonrpc::{Limits, check};
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::decode;
use super::error::JoseError;
use super::public::PublicKey;

/// Bytes of a token.
const MAX_LENGTH: usize = 16 << 10;
const LIMITS: Limits = Limits { depth: 16, keys: 256, values: 2_048 };

/// A token that was read, and not yet believed. Nothing prints it.
pub(crate) struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Header,
    claims: Map<String, Value>,
}

/// What the header of a token says. Other members mean nothing here: no key is ever fetched for a token that asks for it.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// The kind of token: `typ`.
    pub(crate) kind: Option<String>,
    /// A key that the token brings along, which proves nothing by itself.
    pub(crate) jwk: Option<Value>,
}

impl<'a> Token<'a> {
    /// Reads a token. Its signature is not looked at.
    pub(crate) fn parse(token: &'a str) -> Result<Self, JoseError> {
        if token.len() > MAX_LENGTH {
            return Err(JoseError::new("the token is longer than 16384 bytes"));
        }
        let no_token =
            || JoseError::new("the token is no JWT: three parts with dots between them are expected");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(no_token)?;
        let (header, claims) = signed.split_once('.').ok_or_else(no_token)?;
        if claims.contains('.') {
            return Err(no_token());
        }
        let header = Header::read(&object(header, "header")?)?;
        let claims = object(claims, "content")?;
        let signature = decode(signature).filter(|signature| !signature.is_empty());
        let signature =
            signature.ok_or_else(|| JoseError::new("the signature of the token is no base64url"))?;
        Ok(Token { signed, signature, header, claims })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// What the token says, which anybody may have written.
    pub(crate) fn unverified_claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// What the token says, if the owner of `key` has signed it with one of the algorithms `allowed`.
    pub(crate) fn verify(
        &self,
        key: &PublicKey,
        allowed: &[Algorithm],
    ) -> Result<&Map<String, Value>, JoseError> {
        let algorithm = self.header.algorithm;
        if !allowed.contains(&algorithm) {
            return Err(JoseError::new(format!("the algorithm {algorithm} is not accepted")));
        }
        key.verify(algorithm, self.signed.as_bytes(), &self.signature)?;
        Ok(&self.claims)
    }
}

impl Header {
    fn read(members: &Map<String, Value>) -> Result<Self, JoseError> {
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
            Some(_) => Err(JoseError::new(format!("{name} in the header of the token is no text"))),
        };
        let name = text("alg")?.ok_or_else(|| JoseError::new("the token does not name its algorithm"))?;
        let algorithm = Algorithm::find(&name).ok_or_else(|| JoseError::unknown_algorithm(&name))?;
        let jwk = members.get("jwk").cloned();
        Ok(Header { algorithm, key_id: text("kid")?, kind: text("typ")?, jwk })
    }
}

/// One part of a token: an object, in which no key stands twice.
fn object(part: &str, what: &str) -> Result<Map<String, Value>, JoseError> {
    let wrong = |why: &str| JoseError::new(format!("the {what} of the token {why}"));
    let bytes = decode(part).ok_or_else(|| wrong("is no base64url"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("is no UTF-8"))?;
    check(text, LIMITS).map_err(|error| match error.kind {
        linchpin_jsonrpc::ParseErrorKind::DuplicateKey => wrong("has a key twice"),
        linchpin_jsonrpc::ParseErrorKind::Limit => wrong("holds too much"),
        _ => wrong("is no JSON"),
    })?;
    serde_json::from_str(text).map_err(|_| wrong("is no JSON object"))
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("algorithm", &self.header.algorithm).finish_non_exhaustive()
    }
}
