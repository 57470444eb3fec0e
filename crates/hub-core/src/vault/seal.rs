//! Authenticated encryption: `XChaCha20-Poly1305` with a random nonce and a key commitment. Without the commitment, a
//! ciphertext could be made that decrypts differently under two keys.

use chacha20poly1305::aead::{Aead, AeadInOut, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use ring::hmac;
use zeroize::Zeroizing;

use crate::platform::{Platform, random};

const FORMAT_VERSION: u8 = 1;
const NONCE_LEN: usize = 24;
const COMMITMENT_LEN: usize = 32;
/// Length of format version, key commitment and nonce.
const HEADER_LEN: usize = 1 + COMMITMENT_LEN + NONCE_LEN;
const TAG_LEN: usize = 16;

/// Symmetric key that encrypts and decrypts secrets of the vault, with the two keys that are derived from it.
#[derive(Clone)]
pub(super) struct SealingKey {
    bytes: Zeroizing<[u8; 32]>,
    cipher: XChaCha20Poly1305,
    commitment: hmac::Key,
}

impl SealingKey {
    pub(super) fn random(platform: &dyn Platform) -> Self {
        Self::new(Zeroizing::new(random(platform)))
    }

    pub(super) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Self::new(Zeroizing::new(bytes.try_into().ok()?)))
    }

    fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*bytes);
        let mut cipher_key = Zeroizing::new([0; 32]);
        cipher_key.copy_from_slice(hmac::sign(&key, b"linchpin seal").as_ref());
        let commitment = hmac::sign(&key, b"linchpin prove");
        SealingKey {
            bytes,
            cipher: XChaCha20Poly1305::new(&(*cipher_key).into()),
            commitment: hmac::Key::new(hmac::HMAC_SHA256, commitment.as_ref()),
        }
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Encrypts and authenticates a text with the key. It opens only with the same `associated_data`.
    pub(super) fn seal(&self, platform: &dyn Platform, associated_data: &[u8], text: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random(platform);
        let mut sealed = Vec::with_capacity(HEADER_LEN + text.len() + TAG_LEN);
        sealed.push(FORMAT_VERSION);
        let mut proof = hmac::Context::with_key(&self.commitment);
        proof.update(&nonce);
        proof.update(associated_data);
        sealed.extend_from_slice(proof.sign().as_ref());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(text);
        let tag = self.cipher.encrypt_inout_detached(
            &XNonce::from(nonce),
            associated_data,
            (&mut sealed[HEADER_LEN..]).into(),
        );
        sealed.extend_from_slice(&tag.expect("the text is shorter than the limit of the cipher"));
        sealed
    }

    pub(super) fn open(&self, associated_data: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (&version, rest) = sealed.split_first()?;
        let (proof, rest) = rest.split_at_checked(COMMITMENT_LEN)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        if version != FORMAT_VERSION
            || hmac::verify(&self.commitment, &[nonce, associated_data].concat(), proof).is_err()
        {
            return None;
        }
        let payload = Payload { msg: sealed, aad: associated_data };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new)
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
