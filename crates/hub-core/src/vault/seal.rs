//! Authenticated encryption: `XChaCha20-Poly1305` with a random nonce and a key commitment. Without the commitment, a
//! ciphertext could be made that decrypts differently under two keys.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use ring::hmac;
use zeroize::Zeroizing;

use crate::platform::{Platform, random};

const FORMAT_VERSION: u8 = 1;
const NONCE_LEN: usize = 24;
const COMMITMENT_LEN: usize = 32;

/// Symmetric key that encrypts and decrypts secrets of the vault.
#[derive(Clone)]
pub(super) struct SealingKey(Zeroizing<[u8; 32]>);

impl SealingKey {
    pub(super) fn random(platform: &dyn Platform) -> Self {
        SealingKey(Zeroizing::new(random(platform)))
    }

    pub(super) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(SealingKey(Zeroizing::new(bytes.try_into().ok()?)))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Encrypts and authenticates a text with the key. It opens only with the same `associated_data`.
    pub(super) fn seal(&self, platform: &dyn Platform, associated_data: &[u8], text: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random(platform);
        let payload = Payload { msg: text, aad: associated_data };
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("the text is shorter than the limit of the cipher");
        let proof = hmac::sign(&self.commitment_key(), &[&nonce, associated_data].concat());
        [&[FORMAT_VERSION], proof.as_ref(), &nonce, &sealed].concat()
    }

    pub(super) fn open(&self, associated_data: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (&version, rest) = sealed.split_first()?;
        let (proof, rest) = rest.split_at_checked(COMMITMENT_LEN)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        if version != FORMAT_VERSION
            || hmac::verify(&self.commitment_key(), &[nonce, associated_data].concat(), proof).is_err()
        {
            return None;
        }
        let payload = Payload { msg: sealed, aad: associated_data };
        self.cipher().decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), b"linchpin seal");
        let mut bytes = Zeroizing::new([0; 32]);
        bytes.copy_from_slice(key.as_ref());
        XChaCha20Poly1305::new(&(*bytes).into())
    }

    fn commitment_key(&self) -> hmac::Key {
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), b"linchpin prove");
        hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;

    #[test]
    fn no_byte_can_be_changed() {
        let key = SealingKey::random(&SystemPlatform);
        let sealed = key.seal(&SystemPlatform, b"about", b"text");
        assert_eq!(key.open(b"about", &sealed).as_deref().map(Vec::as_slice), Some(&b"text"[..]));
        for index in 0..sealed.len() {
            let mut other = sealed.clone();
            other[index] ^= 1;
            assert!(key.open(b"about", &other).is_none(), "at {index}");
            assert!(key.open(b"about", &sealed[..index]).is_none());
        }
        assert!(key.open(b"abou", &sealed).is_none());
        assert!(SealingKey::random(&SystemPlatform).open(b"about", &sealed).is_none());
        assert_ne!(key.seal(&SystemPlatform, b"about", b"text"), sealed, "never the same twice");
    }
}
