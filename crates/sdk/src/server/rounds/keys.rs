//! Keys for what travels through clients: the first one seals, all of them open, so that keys can be changed while
//! calls are under way and shared by several instances.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

const ID: usize = 4;
const NONCE: usize = 24;

/// A secret key of 32 bytes. It cannot be printed.
#[derive(Clone)]
pub struct Key {
    cipher: XChaCha20Poly1305,
    /// Tells keys apart, and says nothing else about them.
    id: [u8; ID],
}

impl Key {
    /// A key that you have. The same bytes open on one instance what was sealed on another.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(b"linchpin key id").chain_update(bytes).finalize();
        let mut id = [0; ID];
        id.copy_from_slice(&digest[..ID]);
        Key { cipher: XChaCha20Poly1305::new(bytes.into()), id }
    }

    /// A new key, which ends with the process.
    pub fn random() -> Self {
        Self::new(&random())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

/// The keys of a server, newest first.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Seals with `newest`.
    pub fn new(newest: Key) -> Self {
        Keys(vec![newest])
    }

    pub(crate) fn random() -> Self {
        Self::new(Key::random())
    }

    /// Also opens what was sealed with an older key.
    #[must_use]
    pub fn or(mut self, older: Key) -> Self {
        self.0.push(older);
        self
    }

    /// Seals bytes: what comes out can be opened only with this key and for the same purpose.
    pub(crate) fn seal(&self, plain: &[u8], purpose: &str) -> Vec<u8> {
        let key = &self.0[0];
        let nonce: [u8; NONCE] = random();
        let payload = Payload { msg: plain, aad: purpose.as_bytes() };
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("the cipher takes messages of any length that fits into memory");
        [&key.id[..], &nonce, &sealed].concat()
    }

    /// Opens what was sealed; `None` when it was not, or was changed.
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
        assert_ne!(sealed, Keys::new(old.clone()).seal(b"secret", "here"), "never twice the same");
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
