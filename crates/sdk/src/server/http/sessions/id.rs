//! Session ids: 256 random bits, which are the only protection of a session besides the principal. They are never
//! printed.

use std::fmt;

use ::http::HeaderValue;
use sha2::{Digest, Sha256};

/// Key of a session in a store: a digest of its id, from which the id cannot be recovered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// Returns the session key as bytes, for a session store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(test)]
    pub(in crate::server::http) fn random() -> Self {
        SessionId::random().key()
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// MCP session id: 32 random bytes, which the session header carries as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::server::http) struct SessionId([u8; 32]);

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

impl SessionId {
    pub(in crate::server::http) fn random() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
        SessionId(bytes)
    }

    /// Returns a random number of at least 2^30, for event and stream numbers.
    pub(in crate::server::http) fn random_number() -> u32 {
        let [a, b, c, d, ..] = Self::random().0;
        u32::from_be_bytes([a, b, c, d]) >> 1 | 1 << 30
    }

    /// Parses a session id; `None` for text that cannot be an id of this server.
    pub(in crate::server::http) fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 64] = text.try_into().ok()?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(SessionId(bytes))
    }

    pub(in crate::server::http) fn text(&self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits.map(|digit| char::from(HEX_DIGITS[usize::from(digit)])).collect()
    }

    pub(in crate::server::http) fn header(&self) -> HeaderValue {
        let mut value = HeaderValue::from_str(&self.text()).expect("hex digits are valid header characters");
        value.set_sensitive(true);
        value
    }

    pub(in crate::server::http) fn key(&self) -> SessionKey {
        SessionKey(Sha256::digest(self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_both_ways_and_are_not_shown() {
        let id = SessionId::random();
        assert!(SessionId::parse(id.text().as_bytes()) == Some(id));
        assert_eq!(id.header().to_str().unwrap().len(), 64);
        assert!(id.header().is_sensitive());
        assert_eq!(format!("{:?}", id.key()), "SessionKey");
        for invalid in
            ["", "x", &id.text()[1..], &id.text().to_uppercase().replace(|c: char| c.is_ascii_digit(), "A")]
        {
            assert!(SessionId::parse(invalid.as_bytes()).is_none());
        }
    }
}
