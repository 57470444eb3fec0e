//! Set of the keys of one JSON object, for detecting duplicates. Up to eight keys without escapes need no allocation.
//! More keys, or keys with escapes, go into a hash set, which is randomly seeded against collision attacks.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::string::unescape;

const INLINE_KEYS: usize = 8;

pub(crate) struct KeySet<'a> {
    inline: [&'a str; INLINE_KEYS],
    inline_len: usize,
    hashed: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> KeySet<'a> {
    pub(crate) fn new() -> Self {
        Self { inline: [""; INLINE_KEYS], inline_len: 0, hashed: None }
    }

    /// Inserts the key of a JSON object, as written between its quotes. Returns `false` if the set contains it already.
    pub(crate) fn insert(&mut self, raw: &'a str, escaped: bool) -> bool {
        if self.hashed.is_none() && self.inline_len < INLINE_KEYS && !escaped {
            if self.inline[..self.inline_len].contains(&raw) {
                return false;
            }
            self.inline[self.inline_len] = raw;
            self.inline_len += 1;
            return true;
        }
        let hashed = self
            .hashed
            .get_or_insert_with(|| self.inline[..self.inline_len].iter().map(|&key| key.into()).collect());
        hashed.insert(if escaped { unescape(raw) } else { raw.into() })
    }
}
