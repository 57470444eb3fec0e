//! Public keys that verify signatures, parsed from untrusted JWKs.

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

/// Members of a JWK that are private or symmetric key material.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Accepted size of an RSA modulus, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Maximum length of an RSA exponent, in bytes; nearly all keys use three.
const MAX_EXPONENT_LEN: usize = 4;

/// Public key that verifies token signatures, limited to the uses that its JWK permits.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey {
    kind: PublicKeyMaterial,
    /// Algorithm in `alg` of the JWK, which is then the only permitted one.
    algorithm: Option<Algorithm>,
    id: Option<String>,
}

#[derive(Debug, Clone)]
enum PublicKeyMaterial {
    /// An uncompressed point on the curve P-256.
    P256(Vec<u8>),
    /// An uncompressed point on the curve P-384.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa(PublicKeyComponents<Vec<u8>>),
}

impl PublicKey {
    /// Parses a JWK that can be used to verify signatures.
    pub(crate) fn from_jwk(jwk: &Value) -> Result<Self, JoseError> {
        let Value::Object(members) = jwk else { return Err(JoseError::new("the key must be a JSON object")) };
        if PRIVATE_MEMBERS.iter().any(|name| members.contains_key(*name)) {
            return Err(JoseError::new("the key has private members: publish only the public key"));
        }
        if members.get("use").is_some_and(|usage| usage != "sig") {
            return Err(JoseError::new("the key is not for signatures: use must be sig"));
        }
        let verifies = |operations: &Value| {
            operations.as_array().is_some_and(|all| all.iter().any(|operation| operation == "verify"))
        };
        if members.get("key_ops").is_some_and(|operations| !verifies(operations)) {
            return Err(JoseError::new("the key is not for verification: key_ops must contain verify"));
        }
        let algorithm = match members.get("alg") {
            None => None,
            Some(name) => Some(parse_algorithm(name)?),
        };
        let id = members.get("kid").and_then(Value::as_str).map(str::to_owned);
        let key = PublicKey { kind: PublicKeyMaterial::from_jwk(jwk)?, algorithm, id };
        match algorithm.filter(|algorithm| !key.kind.supports(*algorithm)) {
            Some(algorithm) => Err(JoseError::new(format!(
                "the alg of the key is {algorithm}, which does not match its type"
            ))),
            None => Ok(key),
        }
    }

    /// Returns the id (`kid`) of the public key.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns whether the public key can verify signatures of this algorithm.
    pub(crate) fn supports(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|key_algorithm| key_algorithm == algorithm) && self.kind.supports(algorithm)
    }

    /// Verifies a signature over `input`.
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        input: &[u8],
        signature: &[u8],
    ) -> Result<(), JoseError> {
        if !self.supports(algorithm) {
            return Err(JoseError::new(format!("the key cannot be used with {algorithm}")));
        }
        let verify_with = |algorithm_impl: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm_impl, key).verify(input, signature)
        };
        let checked = match &self.kind {
            PublicKeyMaterial::P256(point) => verify_with(&ECDSA_P256_SHA256_FIXED, point),
            PublicKeyMaterial::P384(point) => verify_with(&ECDSA_P384_SHA384_FIXED, point),
            PublicKeyMaterial::Ed25519(key) => verify_with(&ED25519, key),
            PublicKeyMaterial::Rsa(key) => key.verify(rsa_parameters(algorithm), input, signature),
        };
        checked.map_err(|_| JoseError::new("the signature is invalid"))
    }
}

impl PublicKeyMaterial {
    fn from_jwk(jwk: &Value) -> Result<Self, JoseError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let number = |name: &str| {
            let bytes = text(name).and_then(decode);
            bytes.ok_or_else(|| JoseError::new(format!("{name} of the key is missing or not base64url")))
        };
        let point = |length: usize| {
            let (x, y) = (number("x")?, number("y")?);
            if x.len() != length || y.len() != length {
                return Err(JoseError::new("the coordinates of the key have the wrong length"));
            }
            Ok([&[4], &*x, &*y].concat())
        };
        match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => point(32).map(PublicKeyMaterial::P256),
            (Some("EC"), Some("P-384")) => point(48).map(PublicKeyMaterial::P384),
            (Some("OKP"), Some("Ed25519")) => match number("x")? {
                key if key.len() == 32 => Ok(PublicKeyMaterial::Ed25519(key)),
                _ => Err(JoseError::new("the key has the wrong length")),
            },
            (Some("RSA"), _) => rsa_components(number("n")?, number("e")?).map(PublicKeyMaterial::Rsa),
            _ => Err(JoseError::new("the key type is not supported")),
        }
    }

    fn supports(&self, algorithm: Algorithm) -> bool {
        match self {
            PublicKeyMaterial::P256(_) => algorithm == Algorithm::Es256,
            PublicKeyMaterial::P384(_) => algorithm == Algorithm::Es384,
            PublicKeyMaterial::Ed25519(_) => algorithm == Algorithm::EdDsa,
            PublicKeyMaterial::Rsa(_) => {
                !matches!(algorithm, Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa)
            }
        }
    }
}

fn parse_algorithm(name: &Value) -> Result<Algorithm, JoseError> {
    let name = name.as_str().unwrap_or_default();
    Algorithm::find(name).ok_or_else(|| JoseError::unknown_algorithm(name))
}

fn rsa_components(n: Vec<u8>, e: Vec<u8>) -> Result<PublicKeyComponents<Vec<u8>>, JoseError> {
    let Some(first) = n.first().filter(|first| **first != 0) else {
        return Err(JoseError::new("the modulus of the key must not start with a zero byte"));
    };
    let bits = n.len() * 8 - first.leading_zeros() as usize;
    if !RSA_BITS.contains(&bits) {
        return Err(JoseError::new(format!(
            "an RSA key of {bits} bits is not accepted: use 2048 to 8192 bits"
        )));
    }
    let has_odd_exponent = e.last().is_some_and(|last| last % 2 == 1);
    if e.len() > MAX_EXPONENT_LEN || !has_odd_exponent || e.first() == Some(&0) || *e == [1] {
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
