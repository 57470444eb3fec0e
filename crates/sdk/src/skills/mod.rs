//! Parts of the skills extension shared by clients and servers: frontmatter, digests, and skill URIs.
//!
//! This module reads no files and sends nothing. Servers describe skills with it, clients verify them with it.

mod frontmatter;
mod uri;
mod yaml;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub(crate) use frontmatter::{body, check_equal, parse};
pub(crate) use uri::{check_name, encode_path, normalize, skill_root};

/// Main file of every skill.
pub(crate) const SKILL_MD: &str = "SKILL.md";
/// Maximum number of files of a skill. Every host supports it; larger skills are neither offered nor loaded.
pub(crate) const MAX_FILES: usize = 512;
/// Maximum size of all files of a skill in bytes; a larger skill is neither offered nor loaded.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// Returns the SHA-256 digest of a file in the form `sha256:…`.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_sixty_four_lowercase_digits() {
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), expected);
    }
}
