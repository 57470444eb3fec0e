//! Keys that check signatures, from JWKs that somebody else wrote.

use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::Value;

use super::algorithm::Algorithm;
use super::decode;
use super::error::JoseError;

/// Members of a JWK that must not be in public.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Bits of an RSA modulus.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Bytes of an RSA exponent; nearly everybody has three.
const MAX_EXPONENT: usize = 4;

/// A public key and what its owner lets it be used for.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey {
    kind: Kind,
    /// The one algorithm that the key is for, if its JWK says so.
    algorithm: Option<Algorithm>,
    id: Option<String>,
}

#[derive(Debug, Clone)]
enum Kind {
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa(PublicKeyComponents<Vec<u8>>),
}

impl PublicKey {
    /// The key that a JWK describes, if it can be used to check signatures.
    pub(crate) fn from_jwk(jwk: &Value) -> Result<Self, JoseError> {
        let Value::Object(members) = jwk else { return Err(JoseError::new("a key is an object")) };
        if PRIVATE.iter().any(|name| members.contains_key(*name)) {
            return Err(JoseError::new("the key has private members, which must not be shown to anybody"));
        }
        if members.get("use").is_some_and(|usage| usage != "sig") {
            return Err(JoseError::new("the key is not for signatures"));
        }
        let verifies = |operations: &Value| {
            operations.as_array().is_some_and(|all| all.iter().any(|operation| operation == "verify"))
        };
        if members.get("key_ops").is_some_and(|operations| !verifies(operations)) {
            return Err(JoseError::new("the key is not for checking signatures"));
        }
        let algorithm = match members.get("alg") {
            None => None,
            Some(name) => Some(named(name)?),
        };
        let id = members.get("kid").and_then(Value::as_str).map(str::to_owned);
        let key = PublicKey { kind: Kind::read(jwk)?, algorithm, id };
        match algorithm.filter(|algorithm| !key.kind.fits(*algorithm)) {
            Some(algorithm) => {
                Err(JoseError::new(format!("the key is for {algorithm}, which it does not fit")))
            }
            None => Ok(key),
        }
    }

    /// What the key is called by those who sign with it.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether the key can have made signatures of this algorithm.
    pub(crate) fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|own| own == algorithm) && self.kind.fits(algorithm)
    }

    /// Checks a signature.
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        input: &[u8],
        signature: &[u8],
    ) -> Result<(), JoseError> {
        if !self.fits(algorithm) {
            return Err(JoseError::new(format!("the key does not fit {algorithm}")));
        }
        let with = |how: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key).verify(input, signature)
        };
        let checked = match &self.kind {
            Kind::P256(point) => with(&ECDSA_P256_SHA256_FIXED, point),
            Kind::P384(point) => with(&ECDSA_P384_SHA384_FIXED, point),
            Kind::Ed25519(key) => with(&ED25519, key),
            Kind::Rsa(key) => key.verify(rsa_parameters(algorithm), input, signature),
        };
        checked.map_err(|_| JoseError::new("the signature is wrong"))
    }
}

impl Kind {
    fn read(jwk: &Value) -> Result<Self, JoseError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let number = |name: &str| {
            let bytes = text(name).and_then(decode);
            bytes.ok_or_else(|| JoseError::new(format!("{name} of the key is missing or no base64url")))
        };
        let point = |length: usize| {
            let (x, y) = (number("x")?, number("y")?);
            if x.len() != length || y.len() != length {
                return Err(JoseError::new("the coordinates of the key have the wrong length"));
            }
            Ok([&[4], &*x, &*y].concat())
        };
        match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => point(32).map(Kind::P256),
            (Some("EC"), Some("P-384")) => point(48).map(Kind::P384),
            (Some("OKP"), Some("Ed25519")) => match number("x")? {
                key if key.len() == 32 => Ok(Kind::Ed25519(key)),
                _ => Err(JoseError::new("the key has the wrong length")),
            },
            (Some("RSA"), _) => rsa(number("n")?, number("e")?).map(Kind::Rsa),
            _ => Err(JoseError::new("the key is of a kind that is not supported")),
        }
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Kind::P256(_) => algorithm == Algorithm::Es256,
            Kind::P384(_) => algorithm == Algorithm::Es384,
            Kind::Ed25519(_) => algorithm == Algorithm::EdDsa,
            Kind::Rsa(_) => !matches!(algorithm, Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa),
        }
    }
}

fn named(name: &Value) -> Result<Algorithm, JoseError> {
    let name = name.as_str().unwrap_or_default();
    Algorithm::find(name).ok_or_else(|| JoseError::unknown_algorithm(name))
}

fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<PublicKeyComponents<Vec<u8>>, JoseError> {
    let Some(first) = n.first().filter(|first| **first != 0) else {
        return Err(JoseError::new("the modulus of the key begins with zeros"));
    };
    let bits = n.len() * 8 - first.leading_zeros() as usize;
    if !RSA_BITS.contains(&bits) {
        return Err(JoseError::new(format!("an RSA key of {bits} bits is not accepted: 2048 to 8192 are")));
    }
    let is_odd = e.last().is_some_and(|last| last % 2 == 1);
    if e.len() > MAX_EXPONENT || !is_odd || e.first() == Some(&0) || *e == [1] {
        return Err(JoseError::new("the exponent of the key is not accepted"));
    }
    Ok(PublicKeyComponents { n, e })
}

fn rsa_parameters(algorithm: Algorithm) -> &'static RsaParameters {
    match algorithm {
        Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        _ => &RSA_PKCS1_2048_8192_SHA256,
    }
}
