//! Password hashes: Argon2id, stored with its parameters, so that they can be raised later.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use crate::error::{self, Error, Result};
use crate::platform::{World, random};
use crate::text::{hex, unhex};

/// Length of a password in characters.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=1_024;
/// Memory in KiB.
const MEMORY: u32 = 64 * 1_024;
const PASSES: u32 = 3;

/// Stored password hash.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    memory: u32,
    passes: u32,
    salt: String,
    hash: String,
}

impl Kept {
    /// Hashes a password. Deliberately slow.
    pub(super) fn new(world: &dyn World, password: &Secret) -> Result<Self> {
        let mut kept = Self::of_nobody(world);
        kept.hash = kept.hash(password)?;
        Ok(kept)
    }

    /// Creates a hash that no password matches; verifying it takes as long as for a real one.
    pub(super) fn of_nobody(world: &dyn World) -> Self {
        let salt = hex(&random::<16>(world));
        Kept { memory: MEMORY, passes: PASSES, salt, hash: String::new() }
    }

    /// Verifies a password. Deliberately slow.
    pub(super) fn fits(&self, password: &Secret) -> Result<bool> {
        Ok(Secret::new(self.hash(password)?) == Secret::new(&*self.hash))
    }

    fn hash(&self, password: &Secret) -> Result<String> {
        let hash = || {
            let params = Params::new(self.memory, self.passes, 1, None).ok()?;
            let mut blocks = vec![Block::default(); params.block_count()];
            let (argon, mut hash) = (Argon2::new(Algorithm::Argon2id, Version::V0x13, params), [0; 32]);
            let text = password.expose().as_bytes();
            argon.hash_password_into_with_memory(text, &unhex(&self.salt)?, &mut hash, &mut blocks).ok()?;
            Some(hex(&hash))
        };
        let damaged = "the stored password hash is damaged: set the password again";
        hash().ok_or_else(|| Error::new(error::Kind::Internal, "not_readable", damaged))
    }
}

/// Validates the length of a password.
pub(super) fn check(password: &Secret) -> Result<()> {
    if LENGTHS.contains(&password.expose().chars().count()) {
        return Ok(());
    }
    let text = format!("must be {} to {} characters", LENGTHS.start(), LENGTHS.end());
    Err(Error::invalid("password", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::System;

    #[test]
    fn one_password_fits() {
        let kept = Kept::new(&System, &"correct horse".into()).unwrap();
        assert_eq!(kept.fits(&"correct horse".into()), Ok(true));
        assert_eq!(kept.fits(&"correct horsf".into()), Ok(false));
        assert_eq!(Kept::of_nobody(&System).fits(&"".into()), Ok(false));
        let again = Kept::new(&System, &"correct horse".into()).unwrap();
        assert!(again.salt != kept.salt && again.hash != kept.hash);
    }

    #[test]
    fn it_is_the_hash_that_others_make() {
        // `echo -n password | argon2 0123456789abcdef -id -t 3 -k 65536 -p 1 -l 32`
        let salt = hex(b"0123456789abcdef");
        let kept = Kept { memory: MEMORY, passes: PASSES, salt, hash: String::new() };
        let expected = "daf16780dcb73e862146297fa17b81b86b480f33c0b67daef0f2c7c809c5797b";
        assert_eq!(kept.hash(&"password".into()).as_deref(), Ok(expected));
        let damaged = Kept { salt: "x".into(), ..kept };
        assert_eq!(damaged.fits(&"password".into()).unwrap_err().code(), "not_readable");
    }

    #[test]
    fn what_can_be_one() {
        for (text, fits) in [
            ("a".repeat(7), false),
            ("ä".repeat(8), true),
            ("日".repeat(1_024), true),
            ("a".repeat(1_025), false),
        ] {
            assert_eq!(check(&text.into()).is_ok(), fits);
        }
    }
}
