//! Keys that seal the request state. The first key seals and all keys open, so that keys can be rotated while calls
//! are pending, and shared by several instances.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

const ID: usize = 4;
const NONCE: usize = 24;

/// Secret key of 32 bytes. Its `Debug` output does not show it.
#[derive(Clone)]
pub struct Key {
    cipher: XChaCha20Poly1305,
    /// Identifies the key without revealing it.
    id: [u8; ID],
}

impl Key {
    /// Creates a key from bytes. Instances with the same key can open each other's state.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(b"linchpin key id").chain_update(bytes).finalize();
        let mut id = [0; ID];
        id.copy_from_slice(&digest[..ID]);
        Key { cipher: XChaCha20Poly1305::new(bytes.into()), id }
    }

    /// Creates a random key, which is lost when the process ends.
    pub fn random() -> Self {
        Self::new(&random())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// Returns random bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes
}

/// Keys of a server, newest first.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Creates a set of keys that seals with `newest`.
    pub fn new(newest: Key) -> Self {
        Keys(vec![newest])
    }

    pub(crate) fn random() -> Self {
        Self::new(Key::random())
    }

    /// Adds an older key, which only opens.
    #[must_use]
    pub fn or(mut self, older: Key) -> Self {
        self.0.push(older);
        self
    }

    /// Seals bytes. They can be opened only with this key and for the same purpose.
    pub(crate) fn seal(&self, plain: &[u8], purpose: &str) -> Vec<u8> {
        let key = &self.0[0];
        let nonce: [u8; NONCE] = random();
        let payload = Payload { msg: plain, aad: purpose.as_bytes() };
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("the cipher accepts messages of any length that fits into memory");
        [&key.id[..], &nonce, &sealed].concat()
    }

    /// Opens sealed bytes. Returns `None` if they were not sealed with these keys or were modified.
    pub(crate) fn open(&self, sealed: &[u8], purpose: &str) -> Option<Vec<u8>> {
        let (id, rest) = sealed.split_at_checked(ID)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE)?;
        let nonce: [u8; NONCE] = nonce.try_into().ok()?;
        let payload = || Payload { msg: sealed, aad: purpose.as_bytes() };
        let mut keys = self.0.iter().filter(|key| key.id == id);
        keys.find_map(|key| key.cipher.decrypt(&XNonce::from(nonce), payload()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_purpose_only() {
        let (old, new) = (Key::new(&[1; 32]), Key::new(&[2; 32]));
        let sealed = Keys::new(old.clone()).seal(b"secret", "here");
        assert_eq!(Keys::new(old.clone()).open(&sealed, "here").unwrap(), b"secret");
        assert_eq!(Keys::new(old.clone()).open(&sealed, "there"), None);
        assert_eq!(Keys::new(new.clone()).open(&sealed, "here"), None);
        assert_eq!(Keys::new(new.clone()).or(old.clone()).open(&sealed, "here").unwrap(), b"secret");
        assert_ne!(sealed, Keys::new(old.clone()).seal(b"secret", "here"), "each nonce is different");
        assert!(!format!("{:?}", Keys::new(new).or(old)).contains('1'));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let keys = Keys::random();
        let sealed = keys.seal(b"some state", "here");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(&changed, "here"), None, "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(keys.open(&sealed[..length], "here"), None);
        }
    }
}
