//! Private key for `private_key_jwt` client authentication.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::error::AuthError;
use crate::jose::{Algorithm, SigningKey};

/// Private key with an optional key id, for `private_key_jwt` client authentication.
#[derive(Clone)]
pub struct PrivateKey {
    key: SigningKey,
    id: Option<String>,
}

impl PrivateKey {
    /// Parses a private key from a PEM file (PKCS #8).
    pub fn from_pem(pem: &str, algorithm: Algorithm) -> Result<Self, AuthError> {
        Ok(PrivateKey { key: SigningKey::from_pkcs8_pem(pem, algorithm)?, id: None })
    }

    /// Sets the key id (`kid`) that the authorization server knows the key by.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    pub(in crate::auth) fn sign(&self, claims: &impl Serialize) -> Result<String, AuthError> {
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
