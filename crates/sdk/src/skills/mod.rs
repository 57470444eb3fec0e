//! What both sides of the skills extension need: the head of a `SKILL.md`, digests, and the shape of a skill's URIs.
//!
//! It reads no files and sends nothing: servers describe skills with it, clients hold what they read against it.

mod frontmatter;
mod uri;
mod yaml;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub(crate) use frontmatter::{body, parse, same};
pub(crate) use uri::{check_name, encode_path, normalize, root};

/// The file that every skill has.
pub(crate) const SKILL_MD: &str = "SKILL.md";
/// Files and bytes that every host takes; a skill with more is not offered, and not loaded.
pub(crate) const MAX_FILES: usize = 512;
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// The digest of a file's bytes, as it is written.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a text cannot fail
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
