//! Vault: encrypted secrets, each bound to its tenant and purpose.
//!
//! ```text
//! root key (key file) ─► tenant key (stored, wrapped) ─► secrets (stored, encrypted)
//! ```
//!
//! Rotating the root key wraps the tenant keys again, which is quick; the data that they encrypt stays as it is. A
//! tenant has one key for each rotation of its data: the newest encrypts, all of them decrypt. Deleting the wrapped
//! tenant keys makes all data of the tenant permanently unreadable.

mod key_file;
pub mod key_ring;
mod seal;

use std::fmt;
use std::io::Write as _;

use zeroize::Zeroizing;

use self::seal::SealingKey;
pub use key_file::{KeyFile, KeyFileError, KeyFileLock};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{SecretId, TenantId};
use crate::platform::{Platform, random};

/// Root key of the vault, with its id: it encrypts the tenant keys.
#[derive(Clone)]
pub struct RootKey {
    /// Random id of the key, so that two hubs never use one id for two keys. Older versions counted from one.
    pub id: u64,
    key: SealingKey,
}

/// Tenant key of the vault, encrypted with a root key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedTenantKey {
    /// Tenant that the key belongs to.
    pub tenant: TenantId,
    /// Number of the key among the keys of its tenant; the highest is the newest.
    pub number: u32,
    /// Id of the root key that wraps it.
    pub root: u64,
    /// Tenant key, encrypted with the root key.
    pub sealed: Vec<u8>,
}

/// Tenant key, unwrapped: it encrypts the secrets of its tenant.
#[derive(Clone)]
pub struct TenantKey {
    tenant: TenantId,
    /// Number of the key among the keys of its tenant; the highest is the newest.
    pub number: u32,
    key: SealingKey,
}

/// Binding of a vault secret: its id, kind, and what it is bound to; with any other values it cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretBinding {
    /// Id of the secret in the vault.
    pub id: SecretId,
    /// Kind of the secret, such as `bearer`.
    pub kind: String,
    /// Origin or issuer to which the secret may be sent.
    pub bound_to: String,
}

impl RootKey {
    /// Creates a root key with a random id.
    pub fn new(platform: &dyn Platform) -> Self {
        RootKey { id: u64::from_be_bytes(random(platform)), key: SealingKey::random(platform) }
    }

    /// Creates a tenant key with the number after `before`.
    pub fn create_tenant_key(
        &self,
        platform: &dyn Platform,
        tenant: TenantId,
        before: u32,
    ) -> (TenantKey, WrappedTenantKey) {
        let key = TenantKey { tenant, number: before + 1, key: SealingKey::random(platform) };
        let wrapped = self.wrap(platform, &key);
        (key, wrapped)
    }

    /// Encrypts a tenant key with this root key.
    pub fn wrap(&self, platform: &dyn Platform, key: &TenantKey) -> WrappedTenantKey {
        let binding = key_binding(key.tenant, key.number, self.id);
        let sealed = self.key.seal(platform, &binding, key.key.bytes());
        WrappedTenantKey { tenant: key.tenant, number: key.number, root: self.id, sealed }
    }

    /// Decrypts a tenant key that this root key wraps.
    pub fn unwrap(&self, wrapped: &WrappedTenantKey) -> Result<TenantKey> {
        let binding = key_binding(wrapped.tenant, wrapped.number, self.id);
        let unwrapped =
            self.key.open(&binding, &wrapped.sealed).and_then(|bytes| SealingKey::from_slice(&bytes));
        let key = unwrapped.ok_or_else(|| {
            let text =
                "a tenant key cannot be decrypted with this key file: use the key file that it was encrypted with";
            Error::new(ErrorKind::Unavailable, "wrong_key_file", text)
        })?;
        Ok(TenantKey { tenant: wrapped.tenant, number: wrapped.number, key })
    }
}

fn key_binding(tenant: TenantId, number: u32, root: u64) -> Vec<u8> {
    format!("linchpin key 1|{tenant}|{number}|{root}").into_bytes()
}

impl TenantKey {
    /// Encrypts a secret, which can be decrypted only with the same binding.
    pub fn seal(&self, platform: &dyn Platform, label: &SecretBinding, secret: &[u8]) -> Vec<u8> {
        self.key.seal(platform, &self.binding_bytes(label), secret)
    }

    /// Decrypts a secret with this tenant key. Fails if the binding is not the one that it was encrypted with.
    pub fn open(&self, label: &SecretBinding, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        self.key.open(&self.binding_bytes(label), sealed).ok_or_else(|| {
            let text = format!(
                "the stored secret ({}) for {} cannot be decrypted: set it again",
                label.kind, label.bound_to
            );
            Error::new(ErrorKind::Unavailable, "secret_unreadable", text)
        })
    }

    /// Returns the binding of a secret as bytes, which the encryption authenticates. Each part has its length before
    /// it, since callers choose some of the parts.
    fn binding_bytes(&self, label: &SecretBinding) -> Vec<u8> {
        let (tenant, id, number) = (self.tenant.to_string(), label.id.to_string(), self.number.to_string());
        let parts = ["linchpin secret 1", &tenant, &id, &label.kind, &label.bound_to, &number];
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            write!(bytes, "{}:{part}|", part.len()).expect("writing to a vector never fails");
        }
        bytes
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootKey({}, ***)", self.id)
    }
}

impl fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantKey({}, {}, ***)", self.tenant, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;

    const ADA: TenantId = TenantId::from_u128(1);
    const BOB: TenantId = TenantId::from_u128(2);

    fn label(kind: &str, bound_to: &str) -> SecretBinding {
        SecretBinding { id: SecretId::from_u128(7), kind: kind.into(), bound_to: bound_to.into() }
    }

    #[test]
    fn a_secret_opens_only_where_it_belongs() {
        let root = RootKey::new(&SystemPlatform);
        let (key, _) = root.create_tenant_key(&SystemPlatform, ADA, 0);
        let binding = label("bearer", "https://a.example");
        let sealed = key.seal(&SystemPlatform, &binding, b"canary");
        assert_eq!(**key.open(&binding, &sealed).unwrap(), *b"canary");
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        for other in [
            label("basic", "https://a.example"),
            label("bearer", "https://a.example:8443"),
            label("bearer|17:https://a.example", ""),
            SecretBinding { id: SecretId::from_u128(8), ..binding.clone() },
        ] {
            assert_eq!(key.open(&other, &sealed).unwrap_err().code(), "secret_unreadable");
        }
        let others = [
            root.create_tenant_key(&SystemPlatform, ADA, 0).0,
            root.create_tenant_key(&SystemPlatform, ADA, 1).0,
            root.create_tenant_key(&SystemPlatform, BOB, 0).0,
        ];
        for other in others {
            assert!(other.open(&binding, &sealed).is_err());
        }
        let error = key.open(&label("bearer", "https://b.example"), &sealed).unwrap_err().to_string();
        assert_eq!(
            error,
            "the stored secret (bearer) for https://b.example cannot be decrypted: set it again"
        );
    }

    #[test]
    fn another_root_key_changes_nothing_for_secrets() {
        let first = RootKey::new(&SystemPlatform);
        let (key, wrapped) = first.create_tenant_key(&SystemPlatform, ADA, 0);
        let sealed = key.seal(&SystemPlatform, &label("bearer", "x"), b"canary");
        let second = RootKey::new(&SystemPlatform);
        let again = second.wrap(&SystemPlatform, &first.unwrap(&wrapped).unwrap());
        assert_eq!((again.root, again.number), (second.id, 1));
        assert_ne!(first.id, second.id);
        let unwrapped = second.unwrap(&again).unwrap();
        assert_eq!(**unwrapped.open(&label("bearer", "x"), &sealed).unwrap(), *b"canary");
        for (root, wrapped) in [(&first, &again), (&second, &wrapped)] {
            assert_eq!(root.unwrap(wrapped).unwrap_err().code(), "wrong_key_file");
        }
        for moved in
            [WrappedTenantKey { tenant: BOB, ..wrapped.clone() }, WrappedTenantKey { number: 2, ..wrapped }]
        {
            assert!(first.unwrap(&moved).is_err());
        }
    }

    #[test]
    fn nothing_prints_a_key() {
        let root = RootKey::new(&SystemPlatform);
        let (key, _) = root.create_tenant_key(&SystemPlatform, ADA, 0);
        assert_eq!(
            format!("{root:?} {key:?}"),
            format!("RootKey({}, ***) TenantKey({ADA}, 1, ***)", root.id)
        );
    }
}
