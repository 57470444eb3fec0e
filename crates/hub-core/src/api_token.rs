//! API tokens of agents and users: `lp_<id>_<secret>_<check>`. The hub stores only a digest. Secret scanners recognize
//! the format, and the check digits tell a mistyped token from an invalid one without a look-up.

use linchpin::auth::Secret;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::digest::Digest;
use crate::id::TokenId;
use crate::platform::{Platform, random};
use crate::text::unhex;

/// Prefix of every API token.
pub(crate) const PREFIX: &str = "lp_";
/// Length of an API token in bytes.
pub(crate) const TOKEN_LEN: usize = PREFIX.len() + ID_LEN + 1 + SECRET_DIGITS + 1 + CHECK_DIGITS;
/// Length of the token id, a UUID, within an API token.
const ID_LEN: usize = 36;
/// Number of hexadecimal digits of the secret part of an API token.
pub(crate) const SECRET_DIGITS: usize = 64;
/// Number of check digits at the end of an API token.
pub(crate) const CHECK_DIGITS: usize = 8;
/// Minimum number of digits of the secret from which a part of a token is recognized.
const MIN_PART_DIGITS: usize = 16;

/// Creates a new API token. Returns its id, the token itself, and the digest to store.
pub fn issue(platform: &dyn Platform) -> (TokenId, Secret, Digest) {
    let id = TokenId::new(platform);
    let body = format!("{PREFIX}{id}_{}", Digest::from_bytes(random(platform)));
    let text = format!("{body}_{}", check_digits(&body));
    let stored = digest(&text);
    (id, Secret::new(text), stored)
}

/// Parses an API token and verifies its check digits. Returns its id and the digest to compare with the stored one.
pub fn parse(text: &str) -> Option<(TokenId, Digest)> {
    let (body, presented_digits) = text.rsplit_once('_')?;
    if check_digits(body) != presented_digits {
        return None;
    }
    let (id, secret) = body.strip_prefix(PREFIX)?.split_once('_')?;
    (secret.len() == SECRET_DIGITS).then_some(())?;
    Some((id.parse().ok()?, digest(text)))
}

/// Returns the random bytes of an API token.
pub(crate) fn secret_bytes(token: &Secret) -> Option<Zeroizing<[u8; 32]>> {
    let digits = token.expose().split('_').nth(2)?;
    Some(Zeroizing::new(unhex(digits)?.try_into().ok()?))
}

/// Returns the length of a token, or of its present part, given the bytes after `lp_`: an id, 64 and 8 hexadecimal
/// digits. A part has at least 16 digits: the check digits can be computed, so 104 characters are as good as a token.
/// They are not verified, so that a token with a wrong digit is recognized as well.
pub(crate) fn token_len(bytes: &[u8]) -> Option<usize> {
    let (id, rest) = bytes.split_at_checked(ID_LEN)?;
    let is_id = id.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    let rest = rest.strip_prefix(b"_").filter(|_| is_id)?;
    let count =
        |bytes: &[u8], max| bytes.iter().take(max).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = count(rest, SECRET_DIGITS);
    let check = rest[digits..].strip_prefix(b"_").filter(|_| digits == SECRET_DIGITS);
    let length = PREFIX.len() + ID_LEN + 1 + digits + check.map_or(0, |check| 1 + count(check, CHECK_DIGITS));
    (digits >= MIN_PART_DIGITS).then_some(length)
}

fn check_digits(body: &str) -> String {
    Digest::of("linchpin token check").part(body).finish().to_string()[..CHECK_DIGITS].to_owned()
}

fn digest(text: &str) -> Digest {
    Digest::from_bytes(Sha256::digest(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;

    #[test]
    fn what_was_given_is_recognised() {
        let (id, secret, stored) = issue(&SystemPlatform);
        let text = secret.expose();
        assert!(text.starts_with("lp_") && text.len() == TOKEN_LEN && TOKEN_LEN == 113, "{text}");
        for (length, expected) in
            [(TOKEN_LEN, Some(TOKEN_LEN)), (104, Some(104)), (56, Some(56)), (55, None), (3, None)]
        {
            assert_eq!(token_len(&text.as_bytes()[3..length]), expected);
        }
        assert_eq!(parse(text), Some((id, stored)));
        assert_ne!(issue(&SystemPlatform).2, stored);
    }

    #[test]
    fn nothing_else_is() {
        let (_, secret, _) = issue(&SystemPlatform);
        let text = secret.expose();
        for index in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[index] = if other[index] == b'0' { b'1' } else { b'0' };
            assert_eq!(parse(std::str::from_utf8(&other).unwrap()), None, "at {index}");
            assert_eq!(parse(&text[..index]), None);
        }
        let other = format!("lp_{}_{}", "ä".repeat(18), "0".repeat(64));
        assert_eq!(parse(&format!("{other}_{}", check_digits(&other))), None);
    }
}
