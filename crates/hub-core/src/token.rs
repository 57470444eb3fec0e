//! Tokens of agents and of people's programs: `lp_<id>_<secret>_<check>`. The hub keeps a digest; scanners for leaked
//! secrets recognise the form, and a mistyped one is told from a wrong one without asking anybody.

use linchpin::auth::Secret;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::id::TokenId;
use crate::world::{World, random};

/// What every token begins with.
pub(crate) const BEGIN: &str = "lp_";
/// Length of a token in bytes.
pub(crate) const LENGTH: usize = BEGIN.len() + 36 + 1 + 64 + 1 + CHECK;
const CHECK: usize = 8;

/// A new token: what is shown once, and what is kept.
pub fn issue(world: &dyn World) -> (TokenId, Secret, Digest) {
    let id = TokenId::new(world);
    let body = format!("{BEGIN}{id}_{}", Digest::from_bytes(random(world)));
    let text = format!("{body}_{}", check(&body));
    let kept = digest(&text);
    (id, Secret::new(text), kept)
}

/// The id in a token, if it is one; and the digest that must be the one that is kept.
pub fn read(text: &str) -> Option<(TokenId, Digest)> {
    let (body, given) = text.rsplit_once('_')?;
    if check(body) != given {
        return None;
    }
    let (id, secret) = body.strip_prefix(BEGIN)?.split_once('_')?;
    (secret.len() == 64).then_some(())?;
    Some((id.parse().ok()?, digest(text)))
}

/// Returns whether bytes have the format of a token: `lp_`, an id, 64 and 8 hexadecimal digits. The check digits are not
/// compared, so that a token with a wrong digit is recognised, too.
pub(crate) fn is_formed(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(BEGIN.as_bytes()) else { return false };
    let mut parts = rest.split(|byte| *byte == b'_');
    let is_digits =
        |part: &[u8], length: usize| part.len() == length && part.iter().all(u8::is_ascii_hexdigit);
    let id = parts
        .next()
        .is_some_and(|id| id.len() == 36 && id.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-'));
    id && parts.next().is_some_and(|secret| is_digits(secret, 64))
        && parts.next().is_some_and(|check| is_digits(check, CHECK))
        && parts.next().is_none()
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
    use crate::world::System;

    #[test]
    fn what_was_given_is_recognised() {
        let (id, secret, kept) = issue(&System);
        let text = secret.expose();
        assert!(text.starts_with("lp_") && text.len() == LENGTH && LENGTH == 113, "{text}");
        assert!(is_formed(text.as_bytes()) && !is_formed(&text.as_bytes()[..112]) && !is_formed(b"lp_"));
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
