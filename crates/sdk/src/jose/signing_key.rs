//! Private keys that sign tokens, parsed from PKCS #8 or (RSA) PKCS #1, or generated.

use std::fmt;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::algorithm::Algorithm;
use super::encode;
use super::error::JoseError;
use super::pem::{self, Block};

/// Private key that signs tokens, with its only algorithm. Cheap to clone; `Debug` does not print the key.
#[derive(Clone)]
pub(crate) struct SigningKey(Arc<Inner>);

struct Inner {
    algorithm: Algorithm,
    pair: SigningKeyPair,
    /// Private key in PKCS #8 form, if it was generated or restored, so that it can be stored; `None` for a key from a
    /// PEM file.
    pkcs8: Option<Zeroizing<Vec<u8>>>,
}

enum SigningKeyPair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl SigningKey {
    /// Parses a private key from a PEM file: PKCS #8, for RSA also PKCS #1.
    pub(crate) fn from_pkcs8_pem(pem: &str, algorithm: Algorithm) -> Result<Self, JoseError> {
        let pair = match pem::private_key(pem)? {
            Block::Pkcs8(der) => SigningKeyPair::from_pkcs8(&der, algorithm)?,
            Block::Pkcs1(der) => match rsa_encoding(algorithm) {
                Some(_) => SigningKeyPair::Rsa(Box::new(
                    RsaKeyPair::from_der(&der).map_err(|_| key_mismatch(algorithm))?,
                )),
                None => return Err(key_mismatch(algorithm)),
            },
        };
        Ok(SigningKey(Arc::new(Inner { algorithm, pair, pkcs8: None })))
    }

    /// Restores a key from [`Self::to_pkcs8_der`].
    pub(crate) fn from_pkcs8_der(der: &[u8], algorithm: Algorithm) -> Result<Self, JoseError> {
        let pkcs8 = Some(Zeroizing::new(der.to_vec()));
        Ok(SigningKey(Arc::new(Inner {
            algorithm,
            pair: SigningKeyPair::from_pkcs8(der, algorithm)?,
            pkcs8,
        })))
    }

    /// Generates a key for ES256.
    pub(crate) fn generate_es256() -> Self {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).ok();
        let key = made.and_then(|made| Self::from_pkcs8_der(made.as_ref(), Algorithm::Es256).ok());
        key.expect("the operating system provides random numbers")
    }

    /// Returns the complete private key for a secret store; `None` for a key from a PEM file, which is already stored.
    pub(crate) fn to_pkcs8_der(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.pkcs8.clone()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.0.algorithm
    }

    /// Signs a JWT in the compact serialization. `header` must be an object, or null for `alg` only; `alg` is always
    /// that of the key.
    pub(crate) fn sign(&self, header: &Value, claims: &impl Serialize) -> Result<String, JoseError> {
        let mut members = Map::new();
        members.insert("alg".into(), self.0.algorithm.name().into());
        match header {
            Value::Null => {}
            Value::Object(more) => {
                members.extend(
                    more.iter().filter(|(name, _)| *name != "alg").map(|(k, v)| (k.clone(), v.clone())),
                );
            }
            _ => return Err(JoseError::new("the header of a token must be an object")),
        }
        let claims = serde_json::to_vec(claims)
            .map_err(|error| JoseError::new(format!("cannot serialize the claims: {error}")))?;
        let mut token = format!("{}.{}", encode(Value::Object(members).to_string()), encode(claims));
        let signature = self.sign_bytes(token.as_bytes())?;
        token.push('.');
        token.push_str(&encode(signature));
        Ok(token)
    }

    fn sign_bytes(&self, input: &[u8]) -> Result<Vec<u8>, JoseError> {
        let random = SystemRandom::new();
        let failed = |_| JoseError::new("signing failed");
        match &self.0.pair {
            SigningKeyPair::Ecdsa(pair) => Ok(pair.sign(&random, input).map_err(failed)?.as_ref().to_vec()),
            SigningKeyPair::Ed25519(pair) => Ok(pair.sign(input).as_ref().to_vec()),
            SigningKeyPair::Rsa(pair) => {
                let encoding =
                    rsa_encoding(self.0.algorithm).ok_or_else(|| key_mismatch(self.0.algorithm))?;
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, input, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }

    /// Returns the public key as a JWK.
    pub(crate) fn public_jwk(&self) -> Value {
        match &self.0.pair {
            SigningKeyPair::Ecdsa(pair) => {
                // Uncompressed point: 0x04, x, y.
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if self.0.algorithm == Algorithm::Es384 { "P-384" } else { "P-256" };
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            SigningKeyPair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key())})
            }
            SigningKeyPair::Rsa(pair) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = pair.public().into();
                json!({"kty": "RSA", "n": encode(n), "e": encode(e)})
            }
        }
    }
}

impl SigningKeyPair {
    fn from_pkcs8(der: &[u8], algorithm: Algorithm) -> Result<Self, JoseError> {
        let random = SystemRandom::new();
        let pair = match algorithm {
            Algorithm::Es256 => ecdsa_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random),
            Algorithm::Es384 => ecdsa_pair(&ECDSA_P384_SHA384_FIXED_SIGNING, der, &random),
            // OpenSSL writes only the private half; the public half is derived from it.
            Algorithm::EdDsa => {
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(SigningKeyPair::Ed25519)
            }
            _ => RsaKeyPair::from_pkcs8(der).ok().map(|pair| SigningKeyPair::Rsa(Box::new(pair))),
        };
        pair.ok_or_else(|| key_mismatch(algorithm))
    }
}

fn ecdsa_pair(
    curve: &'static EcdsaSigningAlgorithm,
    der: &[u8],
    random: &SystemRandom,
) -> Option<SigningKeyPair> {
    EcdsaKeyPair::from_pkcs8(curve, der, random).ok().map(SigningKeyPair::Ecdsa)
}

fn key_mismatch(algorithm: Algorithm) -> JoseError {
    let kind = match algorithm {
        Algorithm::Es256 => "a P-256 key that includes its public key",
        Algorithm::Es384 => "a P-384 key that includes its public key",
        Algorithm::EdDsa => "an Ed25519 key",
        _ => "an RSA key of 2048 to 4096 bits",
    };
    JoseError::new(format!("the key cannot be used with {algorithm}, which needs {kind} as PKCS #8"))
}

fn rsa_encoding(algorithm: Algorithm) -> Option<&'static dyn RsaEncoding> {
    Some(match algorithm {
        Algorithm::Rs256 => &RSA_PKCS1_SHA256,
        Algorithm::Rs384 => &RSA_PKCS1_SHA384,
        Algorithm::Rs512 => &RSA_PKCS1_SHA512,
        Algorithm::Ps256 => &RSA_PSS_SHA256,
        Algorithm::Ps384 => &RSA_PSS_SHA384,
        Algorithm::Ps512 => &RSA_PSS_SHA512,
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return None,
    })
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, …)", self.0.algorithm)
    }
}
