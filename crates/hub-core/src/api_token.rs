//! API tokens of agents and users: `lp_<id>_<secret>_<check>`. The hub stores only a digest. Secret scanners recognize
//! the format, and the check digits tell a mistyped token from an invalid one without a look-up.

use linchpin::auth::Secret;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::digest::Digest;
use crate::id::TokenId;
use crate::platform::{World, random};
use crate::text::unhex;

/// Prefix of every token.
pub(crate) const BEGIN: &str = "lp_";
/// Length of a token in bytes.
pub(crate) const LENGTH: usize = BEGIN.len() + ID + 1 + DIGITS + 1 + CHECK;
const ID: usize = 36;
/// Number of digits of the secret, and of the check.
pub(crate) const DIGITS: usize = 64;
pub(crate) const CHECK: usize = 8;
/// Minimum number of digits of the secret from which a part of a token is recognized.
const MIN_DIGITS: usize = 16;

/// Issues a token. Returns its id, the token itself, and the digest to store.
pub fn issue(world: &dyn World) -> (TokenId, Secret, Digest) {
    let id = TokenId::new(world);
    let body = format!("{BEGIN}{id}_{}", Digest::from_bytes(random(world)));
    let text = format!("{body}_{}", check(&body));
    let kept = digest(&text);
    (id, Secret::new(text), kept)
}

/// Parses a token. Returns its id and the digest to compare with the stored one.
pub fn read(text: &str) -> Option<(TokenId, Digest)> {
    let (body, given) = text.rsplit_once('_')?;
    if check(body) != given {
        return None;
    }
    let (id, secret) = body.strip_prefix(BEGIN)?.split_once('_')?;
    (secret.len() == DIGITS).then_some(())?;
    Some((id.parse().ok()?, digest(text)))
}

/// Returns the random bytes of a token.
pub(crate) fn secret_of(token: &Secret) -> Option<Zeroizing<[u8; 32]>> {
    let digits = token.expose().split('_').nth(2)?;
    Some(Zeroizing::new(unhex(digits)?.try_into().ok()?))
}

/// Returns the length of a token, or of its present part, given the bytes after `lp_`: an id, 64 and 8 hexadecimal
/// digits. A part has at least 16 digits: the check digits can be computed, so 104 characters are as good as a token.
/// They are not verified, so that a token with a wrong digit is recognized as well.
pub(crate) fn formed(bytes: &[u8]) -> Option<usize> {
    let (id, rest) = bytes.split_at_checked(ID)?;
    let is_id = id.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    let rest = rest.strip_prefix(b"_").filter(|_| is_id)?;
    let count =
        |bytes: &[u8], most| bytes.iter().take(most).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = count(rest, DIGITS);
    let check = rest[digits..].strip_prefix(b"_").filter(|_| digits == DIGITS);
    let length = BEGIN.len() + ID + 1 + digits + check.map_or(0, |check| 1 + count(check, CHECK));
    (digits >= MIN_DIGITS).then_some(length)
}

fn check(body: &str) -> String {
    Digest::of("linchpin token check").part(body).end().to_string()[..CHECK].to_owned()
}

fn digest(text: &str) -> Digest {
    Digest::from_bytes(Sha256::digest(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::System;

    #[test]
    fn what_was_given_is_recognised() {
        let (id, secret, kept) = issue(&System);
        let text = secret.expose();
        assert!(text.starts_with("lp_") && text.len() == LENGTH && LENGTH == 113, "{text}");
        for (length, known) in
            [(LENGTH, Some(LENGTH)), (104, Some(104)), (56, Some(56)), (55, None), (3, None)]
        {
            assert_eq!(formed(&text.as_bytes()[3..length]), known);
        }
        assert_eq!(read(text), Some((id, kept)));
        assert_ne!(issue(&System).2, kept);
    }

    #[test]
    fn nothing_else_is() {
        let (_, secret, _) = issue(&System);
        let text = secret.expose();
        for index in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[index] = if other[index] == b'0' { b'1' } else { b'0' };
            assert_eq!(read(std::str::from_utf8(&other).unwrap()), None, "at {index}");
            assert_eq!(read(&text[..index]), None);
        }
        let other = format!("lp_{}_{}", "ä".repeat(18), "0".repeat(64));
        assert_eq!(read(&format!("{other}_{}", check(&other))), None);
    }
}
