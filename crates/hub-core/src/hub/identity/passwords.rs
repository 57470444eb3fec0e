//! Password hashes: Argon2id, stored with its parameters, so that they can be raised later.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use linchpin::auth::Secret;
use serde::{Deserialize, Serialize};

use crate::error::{self, Error, Result};
use crate::platform::{Platform, random};
use crate::text::{hex, unhex};

/// Allowed length of a password in characters.
const PASSWORD_LEN: std::ops::RangeInclusive<usize> = 8..=1_024;
/// Memory of one Argon2id hash, in KiB.
const MEMORY_KIB: u32 = 64 * 1_024;
/// Number of Argon2id passes over the memory of one hash.
const ITERATIONS: u32 = 3;

/// Password hash of a user, stored with its Argon2id parameters.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::hub) struct PasswordHash {
    memory: u32,
    passes: u32,
    salt: String,
    hash: String,
}

impl PasswordHash {
    /// Hashes a password. Deliberately slow.
    pub(in crate::hub) fn new(platform: &dyn Platform, password: &Secret) -> Result<Self> {
        let mut record = Self::dummy(platform);
        record.hash = record.hash(password)?;
        Ok(record)
    }

    /// Creates a hash that no password matches; verifying it takes as long as for a real one.
    pub(in crate::hub) fn dummy(platform: &dyn Platform) -> Self {
        let salt = hex(&random::<16>(platform));
        PasswordHash { memory: MEMORY_KIB, passes: ITERATIONS, salt, hash: String::new() }
    }

    /// Verifies that a password matches this hash. Deliberately slow.
    pub(in crate::hub) fn verify(&self, password: &Secret) -> Result<bool> {
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
        hash().ok_or_else(|| Error::new(error::ErrorKind::Internal, "record_unreadable", damaged))
    }
}

/// Validates the length of a password.
pub(in crate::hub) fn check_password(password: &Secret) -> Result<()> {
    if PASSWORD_LEN.contains(&password.expose().chars().count()) {
        return Ok(());
    }
    let text = format!("must be {} to {} characters", PASSWORD_LEN.start(), PASSWORD_LEN.end());
    Err(Error::invalid("password", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;

    #[test]
    fn one_password_fits() {
        let record = PasswordHash::new(&SystemPlatform, &"correct horse".into()).unwrap();
        assert_eq!(record.verify(&"correct horse".into()), Ok(true));
        assert_eq!(record.verify(&"correct horsf".into()), Ok(false));
        assert_eq!(PasswordHash::dummy(&SystemPlatform).verify(&"".into()), Ok(false));
        let again = PasswordHash::new(&SystemPlatform, &"correct horse".into()).unwrap();
        assert!(again.salt != record.salt && again.hash != record.hash);
    }

    #[test]
    fn it_is_the_hash_that_others_make() {
        // `echo -n password | argon2 0123456789abcdef -id -t 3 -k 65536 -p 1 -l 32`
        let salt = hex(b"0123456789abcdef");
        let record = PasswordHash { memory: MEMORY_KIB, passes: ITERATIONS, salt, hash: String::new() };
        let expected = "daf16780dcb73e862146297fa17b81b86b480f33c0b67daef0f2c7c809c5797b";
        assert_eq!(record.hash(&"password".into()).as_deref(), Ok(expected));
        let damaged = PasswordHash { salt: "x".into(), ..record };
        assert_eq!(damaged.verify(&"password".into()).unwrap_err().code(), "record_unreadable");
    }

    #[test]
    fn what_can_be_one() {
        for (text, fits) in [
            ("a".repeat(7), false),
            ("ä".repeat(8), true),
            ("日".repeat(1_024), true),
            ("a".repeat(1_025), false),
        ] {
            assert_eq!(check_password(&text.into()).is_ok(), fits);
        }
    }
}
