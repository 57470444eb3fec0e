//! The key that a client proves itself with.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::error::AuthError;
use crate::jose::{Algorithm, SigningKey};

/// A private key and its name, for clients that are known by their key (`private_key_jwt`).
#[derive(Clone)]
pub struct PrivateKey {
    key: SigningKey,
    id: Option<String>,
}

impl PrivateKey {
    /// Reads a key from PEM (PKCS #8).
    pub fn from_pem(pem: &str, algorithm: Algorithm) -> Result<Self, AuthError> {
        Ok(PrivateKey { key: SigningKey::from_pkcs8_pem(pem, algorithm)?, id: None })
    }

    /// The name under which the authorization server knows the key (`kid`).
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    pub(super) fn sign(&self, claims: &impl Serialize) -> Result<String, AuthError> {
        let mut header: Value = json!({ "typ": "JWT" });
        if let Some(id) = &self.id {
            header["kid"] = json!(id);
        }
        Ok(self.key.sign(&header, claims)?)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.key.algorithm().name())
    }
}
