//! Secrets of the hub itself. A stdio server can read the hub's files, so its results are searched for them: keys of the
//! key file by value, and API tokens, of which the hub stores only a digest, by their format.

use std::sync::{Arc, Mutex};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::hidden::{MASK, core, shifted};
use crate::sync::lock;
use crate::text::{hex, unhex};
use crate::token;

/// Length of what the search looks for: the rest of a secret is compared where its beginning was found.
const BEGINNING: usize = 8;
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// All secrets of the hub, as far as they are known. None is forgotten: a copy of an old key file opens old backups.
pub(crate) struct OwnSecrets(Mutex<Arc<Search>>);

impl OwnSecrets {
    /// With these keys.
    pub(crate) fn new<'a>(keys: impl Iterator<Item = &'a [u8; 32]>) -> Self {
        OwnSecrets(Mutex::new(Arc::new(Search::new(forms(keys)))))
    }

    /// Adds keys.
    pub(crate) fn learn<'a>(&self, keys: impl Iterator<Item = &'a [u8; 32]>) {
        let mut search = lock(&self.0);
        let known = search.keys.iter().cloned();
        *search = Arc::new(Search::new(known.chain(forms(keys)).collect()));
    }

    /// The search for what is known now.
    pub(crate) fn search(&self) -> Arc<Search> {
        lock(&self.0).clone()
    }
}

/// Search for the secrets of the hub. It passes over a text once.
pub(crate) struct Search {
    /// Finds where a secret may begin.
    beginnings: AhoCorasick,
    /// Every spelling of every key.
    keys: Vec<Zeroizing<String>>,
    /// Every spelling of the beginning of a token, and of a line of a key file.
    formats: Vec<(String, Spelling)>,
}

/// Spelling of a text within another one.
#[derive(Clone, Copy)]
enum Spelling {
    Plain,
    Hex,
    /// Line of a key file: another hub may have added a key that is not known here yet.
    KeyLine,
    /// Base64 of a text in which it begins so many bytes after a multiple of three.
    Base64(usize),
}

impl Search {
    fn new(mut keys: Vec<Zeroizing<String>>) -> Self {
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other));
        keys.dedup_by(|one, other| one.as_str() == other.as_str());
        let digits = hex(token::BEGIN.as_bytes());
        let mut formats = vec![
            (token::BEGIN.to_owned(), Spelling::Plain),
            (digits.to_ascii_uppercase(), Spelling::Hex),
            (digits, Spelling::Hex),
            ("root ".to_owned(), Spelling::KeyLine),
            ("audit ".to_owned(), Spelling::KeyLine),
        ];
        for begin in 0..3 {
            let encoded = STANDARD_NO_PAD.encode(shifted(token::BEGIN.as_bytes(), begin));
            formats.push((core(&encoded, begin, token::BEGIN.len()), Spelling::Base64(begin)));
        }
        let beginnings =
            keys.iter().map(|key| &key[..BEGINNING]).chain(formats.iter().map(|(text, _)| &**text));
        let beginnings = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .kind(Some(AhoCorasickKind::DFA))
            .build(beginnings)
            .expect("a key file is too short for too many patterns");
        Search { beginnings, keys, formats }
    }

    /// Masks every secret in a text. Returns `None` if there is none.
    pub(crate) fn mask(&self, text: &str) -> Option<String> {
        let (mut out, mut copied, mut from) = (String::new(), 0, 0);
        while let Some(found) = self.beginnings.find(&text[from..]) {
            let begin = from + found.start();
            // All beginnings are ASCII, so the next byte begins a character.
            from = begin + 1;
            if let Some(end) = self.end_of_secret(text, begin) {
                out.push_str(&text[copied..begin]);
                out.push_str(MASK);
                (copied, from) = (end, end);
            }
        }
        (copied > 0).then(|| out + &text[copied..])
    }

    /// The end of the secret that begins here, if one does.
    fn end_of_secret(&self, text: &str, begin: usize) -> Option<usize> {
        let rest = &text[begin..];
        let key = self.keys.iter().filter(|key| rest.starts_with(key.as_str())).map(|key| key.len()).max();
        let spelled = || self.formats.iter().filter(|(beginning, _)| rest.starts_with(beginning.as_str()));
        let format = || spelled().find_map(|(_, spelling)| spelling.end_of_secret(text, begin));
        key.map(|length| begin + length).or_else(format)
    }
}

impl Spelling {
    /// The end of the token or the line that begins here, if one does.
    fn end_of_secret(self, text: &str, begin: usize) -> Option<usize> {
        let (end, decoded) = match self {
            Spelling::Plain => {
                let end = begin + token::LENGTH;
                (end, text.get(begin..end)?.as_bytes().to_vec())
            }
            Spelling::Hex => {
                let end = begin + 2 * token::LENGTH;
                (end, unhex(&text.get(begin..end)?.to_ascii_lowercase())?)
            }
            Spelling::KeyLine => {
                let (name, rest) = text[begin..].split_once(' ')?;
                let id = rest.bytes().take_while(u8::is_ascii_digit).count();
                let (before, key) = if name == "root" { (id + 1, rest.get(id + 1..)?) } else { (0, rest) };
                let is_key = key.len() >= 64 && key.bytes().take(64).all(|byte| byte.is_ascii_hexdigit());
                return is_key.then_some(begin + name.len() + 1 + before + 64);
            }
            Spelling::Base64(shift) => {
                // From the beginning of the group of four digits that its first byte is in.
                let group = begin.checked_sub((shift * 8).div_ceil(6))?;
                let bits = (shift + token::LENGTH) * 8;
                let digits = text.get(group..group + bits.div_ceil(6))?.replace('-', "+").replace('_', "/");
                let decoded = DECODER.decode(digits).ok()?;
                (group + bits / 6, decoded.get(shift..shift + token::LENGTH)?.to_vec())
            }
        };
        token::is_formed(&decoded).then_some(end)
    }
}

/// Every spelling of every key: the bytes and their digits in hexadecimal and in base64.
fn forms<'a>(keys: impl Iterator<Item = &'a [u8; 32]>) -> Vec<Zeroizing<String>> {
    let mut forms = Vec::new();
    for key in keys {
        let digits = Zeroizing::new(hex(key));
        let twice = hex(digits.as_bytes());
        forms.extend([digits.to_ascii_uppercase(), String::clone(&digits)]);
        forms.extend([twice.to_ascii_uppercase(), twice]);
        for bytes in [&key[..], digits.as_bytes()] {
            for begin in 0..3 {
                let shifted = Zeroizing::new(shifted(bytes, begin));
                forms.extend(
                    [STANDARD_NO_PAD, URL_SAFE_NO_PAD]
                        .map(|engine| core(&engine.encode(&*shifted), begin, bytes.len())),
                );
            }
        }
    }
    forms.into_iter().map(Zeroizing::new).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;
    use crate::vault::KeyFile;
    use crate::world::System;

    const KEY: &str = "93abf01c4e93abf01c4e93abf01c4e93abf01c4e93abf01c4e93abf01c4e93ff";
    const AUDIT: &str = "00ffee1c4e93abf01c4e93abf01c4e93abf01c4e93abf01c4e93abf01c4e9301";

    fn own(text: &str) -> Arc<OwnSecrets> {
        KeyFile::parse(Path::new("/keys"), text).unwrap().own_secrets().clone()
    }

    fn text() -> String {
        format!("# linchpin keys\naudit {AUDIT}\nroot 1 {KEY}\n")
    }

    pub(crate) fn secrets() -> Arc<OwnSecrets> {
        own(&text())
    }

    #[test]
    fn tokens_and_keys_are_masked_in_every_spelling() {
        let search = secrets().search();
        let (_, token, _) = token::issue(&System);
        let raw = unhex(KEY).unwrap();
        for around in ["", "é", "ab", "abc", "x=\"", "lp_", "{\"token\":\""] {
            for secret in [token.expose().as_bytes(), KEY.as_bytes(), AUDIT.as_bytes(), &raw] {
                let whole = [around.as_bytes(), secret, around.as_bytes()].concat();
                let mut spellings = vec![
                    STANDARD.encode(&whole),
                    URL_SAFE.encode(&whole),
                    format!("{around}{}{around}", hex(secret)),
                    format!("{around}{}{around}", hex(secret).to_ascii_uppercase()),
                ];
                spellings.extend(String::from_utf8(whole));
                for spelling in spellings {
                    let masked = search.mask(&spelling).unwrap_or_else(|| panic!("{spelling} is not masked"));
                    let is_short = masked.len() < 40; // no more than what is around it
                    assert!(masked.contains(MASK) && is_short, "{spelling}: {masked}");
                }
            }
        }
        assert_eq!(search.mask(&text()).unwrap(), "# linchpin keys\n***\n***\n");
        let other = text().replace("4e93", "5a07");
        assert_eq!(search.mask(&other).unwrap(), "# linchpin keys\n***\n***\n");
        let two = format!("{0} {0},{KEY}.", token.expose());
        assert_eq!(search.mask(&two).unwrap(), "*** ***,***.");
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        let search = secrets().search();
        let (_, token, _) = token::issue(&System);
        let token = token.expose();
        for plain in [
            "",
            "lp_",
            "help_me lp_é",
            &token[..112],
            &token.replace('_', "-"),
            &KEY[..63],
            "bHBf",
            "6c705f",
            "root ",
            "root 1 é",
            "audit x",
        ] {
            assert_eq!(search.mask(plain), None, "{plain}");
        }
    }

    #[test]
    fn new_keys_are_added_and_old_ones_stay() {
        let secrets = secrets();
        let new = KEY.replace("93ab", "a0b1");
        assert_eq!(secrets.search().mask(&new), None);
        secrets.learn([&unhex(&new).unwrap().try_into().unwrap()].into_iter());
        assert_eq!(secrets.search().mask(&format!("{new} {KEY}")).unwrap(), "*** ***");
    }
}
