//! Keys that encrypt the request state of multi round-trip requests. The first key seals and all keys open, so that
//! keys can be rotated while calls are pending, and shared by several instances.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

const KEY_ID_LEN: usize = 4;
const NONCE_LEN: usize = 24;

/// Secret key of 32 bytes that encrypts the request state of multi round-trip requests. Its `Debug` output does not
/// show it.
#[derive(Clone)]
pub struct StateKey {
    cipher: XChaCha20Poly1305,
    /// Id of the key, which does not reveal it.
    id: [u8; KEY_ID_LEN],
}

impl StateKey {
    /// Creates a key for sealing request states from its bytes. Instances with the same key can open each other's
    /// state.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(b"linchpin key id").chain_update(bytes).finalize();
        let mut id = [0; KEY_ID_LEN];
        id.copy_from_slice(&digest[..KEY_ID_LEN]);
        StateKey { cipher: XChaCha20Poly1305::new(bytes.into()), id }
    }

    /// Creates a random key for sealing request states, which is lost when the process ends.
    pub fn random() -> Self {
        Self::new(&random())
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(***)")
    }
}

/// Returns random bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes
}

/// Keys that encrypt and decrypt the request state of a server, newest first.
#[derive(Debug, Clone)]
pub struct StateKeys(Vec<StateKey>);

impl StateKeys {
    /// Creates a key set that seals request states with `newest`.
    pub fn new(newest: StateKey) -> Self {
        StateKeys(vec![newest])
    }

    pub(crate) fn random() -> Self {
        Self::new(StateKey::random())
    }

    /// Adds an older key, which opens existing states but seals no new ones.
    #[must_use]
    pub fn with_older(mut self, older: StateKey) -> Self {
        self.0.push(older);
        self
    }

    /// Encrypts and authenticates bytes with the newest key. They can be opened only with this key and for the same
    /// purpose.
    pub(crate) fn seal(&self, plain: &[u8], purpose: &str) -> Vec<u8> {
        let key = &self.0[0];
        let nonce: [u8; NONCE_LEN] = random();
        let payload = Payload { msg: plain, aad: purpose.as_bytes() };
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("the cipher accepts messages of any length that fits into memory");
        [&key.id[..], &nonce, &sealed].concat()
    }

    /// Decrypts a sealed request state. Returns `None` if it was not sealed with these keys or was modified.
    pub(crate) fn open(&self, sealed: &[u8], purpose: &str) -> Option<Vec<u8>> {
        let (id, rest) = sealed.split_at_checked(KEY_ID_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let nonce: [u8; NONCE_LEN] = nonce.try_into().ok()?;
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
        let (old, new) = (StateKey::new(&[1; 32]), StateKey::new(&[2; 32]));
        let sealed = StateKeys::new(old.clone()).seal(b"secret", "here");
        assert_eq!(StateKeys::new(old.clone()).open(&sealed, "here").unwrap(), b"secret");
        assert_eq!(StateKeys::new(old.clone()).open(&sealed, "there"), None);
        assert_eq!(StateKeys::new(new.clone()).open(&sealed, "here"), None);
        assert_eq!(
            StateKeys::new(new.clone()).with_older(old.clone()).open(&sealed, "here").unwrap(),
            b"secret"
        );
        assert_ne!(sealed, StateKeys::new(old.clone()).seal(b"secret", "here"), "each nonce is different");
        assert!(!format!("{:?}", StateKeys::new(new).with_older(old)).contains('1'));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let keys = StateKeys::random();
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
