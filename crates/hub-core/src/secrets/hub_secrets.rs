//! Redaction of the hub's own secrets in texts from servers. A stdio server can read the hub's files, so its results
//! are searched for them: keys of the key file by value, and API tokens, of which the hub stores only a digest, by
//! their format.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::api_token;
use crate::lock::lock;
use crate::secrets::redact::{MASK, aligned_digits, with_offset};
use crate::text::{hex, unhex};

/// Length of the blocks of a key that the search looks for. A run of twice this length contains a complete block.
const BLOCK_LEN: usize = 8;
/// Minimum length of a part of a known key that is masked: a result may contain a part of a file.
const MIN_PART_LEN: usize = 2 * BLOCK_LEN;
/// Minimum number of digits of a part of an unknown secret that is masked by its format alone. With fewer digits, an
/// attacker still has to guess at least 64 bits.
const MIN_DIGITS: usize = 48;
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// All known secrets of the hub itself, which are redacted in texts from servers. None is removed: a copy of an old key
/// file opens old backups.
pub(crate) struct HubSecrets(Mutex<Arc<SecretSearcher>>);

impl HubSecrets {
    /// Creates the set of secrets to search for with these keys.
    pub(crate) fn new<'a>(keys: impl Iterator<Item = &'a [u8; 32]>) -> Self {
        HubSecrets(Mutex::new(Arc::new(SecretSearcher::new(key_encodings(keys)))))
    }

    /// Adds keys of the key file to the secrets to search for.
    pub(crate) fn add<'a>(&self, keys: impl Iterator<Item = &'a [u8; 32]>) {
        let mut searcher = lock(&self.0);
        let existing_keys = searcher.keys.iter().cloned();
        *searcher = Arc::new(SecretSearcher::new(existing_keys.chain(key_encodings(keys)).collect()));
    }

    /// Returns the searcher that finds, in a text, all secrets of the hub known now.
    pub(crate) fn searcher(&self) -> Arc<SecretSearcher> {
        lock(&self.0).clone()
    }
}

/// Matcher that finds the secrets of the hub, in every encoding, in one pass over a text.
pub(crate) struct SecretSearcher {
    /// Finds positions where a secret may be: the blocks of the keys, then the formats, then the ends of tokens.
    matcher: AhoCorasick,
    /// Number of patterns of `matcher` that are blocks of keys.
    blocks: usize,
    /// Every key to search for, in every encoding.
    keys: Vec<Zeroizing<String>>,
    /// Prefixes of tokens and of key file lines, in every encoding.
    formats: Vec<(String, SecretEncoding)>,
}

/// Encoding in which a secret of the hub is searched for in a text, such as hexadecimal or Base64.
#[derive(Clone, Copy)]
enum SecretEncoding {
    Plain,
    Hex,
    /// Line of a key file: a peer hub may have added a key that is not known here yet.
    KeyLine,
    /// Base64 form of a secret that starts this many bytes after a multiple of three in the encoded text.
    Base64(usize),
}

impl SecretSearcher {
    fn new(mut keys: Vec<Zeroizing<String>>) -> Self {
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other));
        keys.dedup_by(|one, other| one.as_str() == other.as_str());
        let digits = hex(api_token::PREFIX.as_bytes());
        let mut formats = vec![
            (api_token::PREFIX.to_owned(), SecretEncoding::Plain),
            (digits.to_ascii_uppercase(), SecretEncoding::Hex),
            (digits, SecretEncoding::Hex),
            ("root ".to_owned(), SecretEncoding::KeyLine),
            ("audit ".to_owned(), SecretEncoding::KeyLine),
        ];
        for offset in 0..3 {
            let encoded = STANDARD_NO_PAD.encode(with_offset(api_token::PREFIX.as_bytes(), offset));
            formats.push((
                aligned_digits(&encoded, offset, api_token::PREFIX.len()),
                SecretEncoding::Base64(offset),
            ));
        }
        // Two digits and the underscore before the check digits of a token.
        let ends: Vec<_> = (0..=u8::MAX).map(|byte| hex(&[byte]) + "_").collect();
        let blocks = || keys.iter().flat_map(|key| key.as_bytes().chunks_exact(BLOCK_LEN));
        let patterns = blocks()
            .chain(formats.iter().map(|(text, _)| text.as_bytes()))
            .chain(ends.iter().map(String::as_bytes));
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .kind(Some(AhoCorasickKind::DFA))
            .build(patterns)
            .expect("a key file has too few keys to exceed the pattern limit");
        SecretSearcher { matcher, blocks: blocks().count(), keys, formats }
    }

    /// Returns whether a text may contain a secret.
    pub(crate) fn may_match(&self, text: &str) -> bool {
        self.matcher.is_match(text)
    }

    /// Masks every secret in a text, and every part of a secret that is long enough to be recognized. Returns `None` if
    /// there is none.
    pub(crate) fn mask(&self, text: &str) -> Option<String> {
        let (mut out, mut copied, mut from) = (String::new(), 0, 0);
        while let Some(found) = self.matcher.find(&text[from..]) {
            let at = from + found.start();
            // All patterns are ASCII, so that the next byte starts a character.
            from = at + 1;
            if let Some(secret) = self.find_secret(text, copied, at, found.pattern().as_usize()) {
                out.push_str(&text[copied..secret.start]);
                out.push_str(MASK);
                (copied, from) = (secret.end, secret.end);
            }
        }
        (copied > 0).then(|| out + &text[copied..])
    }

    /// Returns the range of the secret at this position of a text, if there is one. Text before `floor` has been
    /// masked. `pattern` is the first pattern that matches here.
    fn find_secret(&self, text: &str, floor: usize, at: usize, pattern: usize) -> Option<Range<usize>> {
        let part = (pattern < self.blocks).then(|| self.find_key_part(text.as_bytes(), floor, at)).flatten();
        let matching_formats = || self.formats.iter().filter(|(prefix, _)| text[at..].starts_with(prefix));
        let format = || Some(at..matching_formats().find_map(|(_, encoding)| encoding.find_end(text, at))?);
        let is_format = pattern < self.blocks + self.formats.len();
        part.or_else(|| is_format.then(format).flatten())
            .or_else(|| find_token_end(text.as_bytes(), floor, at + 2))
    }

    /// Finds the longest part of a hub key in a text, given that one block of the key is at this position.
    fn find_key_part(&self, text: &[u8], floor: usize, at: usize) -> Option<Range<usize>> {
        let (before, rest) = (&text[floor..at], &text[at..]);
        let parts = self.keys.iter().flat_map(|key| {
            let blocks = key.as_bytes().chunks_exact(BLOCK_LEN).enumerate();
            blocks.filter(|(_, block)| rest.starts_with(block)).filter_map(|(index, _)| {
                let (preceding, following) = key.as_bytes().split_at(index * BLOCK_LEN);
                let (right, right_len) = common_prefix(following.iter(), rest.iter());
                let (left, left_len) = common_prefix(preceding.iter().rev(), before.iter().rev());
                (left + right >= MIN_PART_LEN).then_some(at - left_len..at + right_len)
            })
        });
        parts.max_by_key(Range::len)
    }
}

/// Compares characters of a key with a text that may contain line ends anywhere, both in the direction of the
/// iterators. Returns the number of equal characters, and the length of the text that they span.
fn common_prefix<'a>(
    key: impl Iterator<Item = &'a u8>,
    text: impl Iterator<Item = &'a u8>,
) -> (usize, usize) {
    let (mut key, mut matching, mut length) = (key.peekable(), 0, 0);
    for (index, byte) in text.enumerate() {
        if key.next_if_eq(&byte).is_some() {
            (matching, length) = (matching + 1, index + 1);
        } else if !is_line_end(*byte) {
            break;
        }
    }
    (matching, length)
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Finds the last part of an API token whose start is missing: secret digits, `_` at this position, and check digits.
fn find_token_end(text: &[u8], floor: usize, underscore: usize) -> Option<Range<usize>> {
    let (digits, rest) = (text.get(floor..underscore)?, &text[underscore..]);
    let check = rest.strip_prefix(b"_")?.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = digits.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let is_token =
        check == api_token::CHECK_DIGITS && (MIN_DIGITS..=api_token::SECRET_DIGITS).contains(&digits);
    is_token.then_some(underscore - digits..underscore + 1 + check)
}

/// Returns up to `count` digits from this offset of a text, with the offset after each of them. Line ends are skipped.
fn read_digits(text: &str, start: usize, count: usize, is_digit: fn(u8) -> bool) -> (String, Vec<usize>) {
    let bytes = text.bytes().enumerate().skip(start).filter(|(_, byte)| !is_line_end(*byte));
    let digits = bytes.take_while(|(_, byte)| is_digit(*byte)).take(count);
    digits.map(|(index, byte)| (char::from(byte), index + 1)).unzip()
}

impl SecretEncoding {
    /// Returns the end of the API token or encoded line that starts at this offset, if one does.
    fn find_end(self, text: &str, start: usize) -> Option<usize> {
        match self {
            SecretEncoding::Plain => {
                api_token::token_len(&text.as_bytes()[start + api_token::PREFIX.len()..])
                    .map(|length| start + length)
            }
            SecretEncoding::Hex => {
                let is_digit = |byte: u8| byte.is_ascii_hexdigit();
                let (mut digits, ends) = read_digits(text, start, 2 * api_token::TOKEN_LEN, is_digit);
                digits.truncate(digits.len() & !1);
                let length = api_token::token_len(
                    unhex(&digits.to_ascii_lowercase())?.get(api_token::PREFIX.len()..)?,
                )?;
                ends.get(2 * length - 1).copied()
            }
            SecretEncoding::KeyLine => {
                let (name, rest) = text[start..].split_once(' ')?;
                let id = rest.bytes().take_while(u8::is_ascii_digit).count();
                let (before, key) = if name == "root" { (id + 1, rest.get(id + 1..)?) } else { (0, rest) };
                let digits = key.bytes().take(64).take_while(u8::is_ascii_hexdigit).count();
                (digits >= MIN_DIGITS).then_some(start + name.len() + 1 + before + digits)
            }
            SecretEncoding::Base64(shift) => {
                // The text before may be on another line; it has no part in the bytes after `lp_`.
                let missing = (shift * 8).div_ceil(6);
                let count = ((shift + api_token::TOKEN_LEN) * 8).div_ceil(6) - missing;
                let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
                let (digits, ends) = read_digits(text, start, count, is_digit);
                let mut digits = "A".repeat(missing) + &digits.replace('-', "+").replace('_', "/");
                if digits.len() % 4 == 1 {
                    digits.pop(); // one digit alone is not a byte
                }
                let decoded = DECODER.decode(digits).ok()?;
                let length = api_token::token_len(decoded.get(shift + api_token::PREFIX.len()..)?)?;
                ends.get((shift + length) * 8 / 6 - missing - 1).copied()
            }
        }
    }
}

/// Returns every hub key in every encoding: its bytes and its hexadecimal digits, each in hexadecimal and in base64.
fn key_encodings<'a>(keys: impl Iterator<Item = &'a [u8; 32]>) -> Vec<Zeroizing<String>> {
    let mut forms = Vec::new();
    for key in keys {
        let digits = Zeroizing::new(hex(key));
        let twice = hex(digits.as_bytes());
        forms.extend([digits.to_ascii_uppercase(), String::clone(&digits)]);
        forms.extend([twice.to_ascii_uppercase(), twice]);
        for bytes in [&key[..], digits.as_bytes()] {
            for offset in 0..3 {
                let shifted = Zeroizing::new(with_offset(bytes, offset));
                forms.extend(
                    [STANDARD_NO_PAD, URL_SAFE_NO_PAD]
                        .map(|engine| aligned_digits(&engine.encode(&*shifted), offset, bytes.len())),
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
    use crate::platform::SystemPlatform;
    use crate::vault::KeyFile;

    const KEY: &str = "93abf01c4e93ab5d0717c86093abe2f1b64a93abd9380f5c77214e93ab06a8ff";
    const AUDIT: &str = "00ffee1c4e93b1720d864e9355a0cfe7193b6ad84e9312f7c0458b9d4e937c01";

    fn hub_secrets(text: &str) -> Arc<HubSecrets> {
        KeyFile::parse(Path::new("/keys"), text).unwrap().hub_secrets().clone()
    }

    fn text() -> String {
        format!("# linchpin keys\naudit {AUDIT}\nroot 1 {KEY}\n")
    }

    pub(crate) fn secrets() -> Arc<HubSecrets> {
        hub_secrets(&text())
    }

    #[test]
    fn tokens_and_keys_are_masked_in_every_spelling() {
        let searcher = secrets().searcher();
        let (_, token, _) = api_token::issue(&SystemPlatform);
        let raw = unhex(KEY).unwrap();
        for around in ["", "é", "ab", "abc", "x=\"", "lp_", "{\"token\":\""] {
            for secret in [token.expose().as_bytes(), KEY.as_bytes(), AUDIT.as_bytes(), &raw] {
                let whole = [around.as_bytes(), secret, around.as_bytes()].concat();
                let mut encodings = vec![
                    STANDARD.encode(&whole),
                    URL_SAFE.encode(&whole),
                    format!("{around}{}{around}", hex(secret)),
                    format!("{around}{}{around}", hex(secret).to_ascii_uppercase()),
                ];
                encodings.extend(String::from_utf8(whole));
                for encoded in encodings {
                    let masked = searcher.mask(&encoded).unwrap_or_else(|| panic!("{encoded} is not masked"));
                    let is_short = masked.len() < 40; // only the text around the secret
                    assert!(masked.contains(MASK) && is_short, "{encoded}: {masked}");
                }
            }
        }
        assert_eq!(searcher.mask(&text()).unwrap(), "# linchpin keys\n***\n***\n");
        let other = text().replace("4e93", "5a07");
        assert_eq!(searcher.mask(&other).unwrap(), "# linchpin keys\n***\n***\n");
        let two = format!("{0} {0},{KEY}.", token.expose());
        assert_eq!(searcher.mask(&two).unwrap(), "*** ***,***.");
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        let searcher = secrets().searcher();
        let (_, token, _) = api_token::issue(&SystemPlatform);
        let token = token.expose();
        for plain in [
            "",
            "lp_",
            "help_me lp_é",
            &token[..55],
            &token.replace('_', "-"),
            &KEY[..15],
            "0123456789abcdef0123456789abcdef_20260728",
            "file_aa_bb_cc_é",
            "bHBf",
            "6c705f",
            "root ",
            "root 1 é",
            "audit x",
        ] {
            assert_eq!(searcher.mask(plain), None, "{plain}");
        }
    }

    #[test]
    fn parts_of_tokens_and_keys_are_masked() {
        let searcher = secrets().searcher();
        let (_, token, _) = api_token::issue(&SystemPlatform);
        let token = token.expose();
        for length in [56, 80, 103, 104, 105, 112] {
            assert_eq!(searcher.mask(&token[..length]).as_deref(), Some(MASK), "{length} characters");
            let cut = STANDARD.encode(&token[..length]);
            let masked = searcher.mask(&cut).unwrap();
            assert!(masked.len() < 8, "{length} characters: {masked}");
        }
        for missing in [1, 30, 40, 56] {
            let masked = searcher.mask(&token[missing..]).unwrap();
            assert!(!masked.contains(&token[60..80]) && masked.ends_with(MASK), "{missing}: {masked}");
        }
        for start in 0..48 {
            for end in start + 16..=64 {
                assert_eq!(
                    searcher.mask(&format!("x{}y", &AUDIT[start..end])).unwrap(),
                    "x***y",
                    "{start}..{end}"
                );
            }
        }
        let unknown = AUDIT.replace("4e", "77");
        assert_eq!(searcher.mask(&format!("audit {}", &unknown[..63])).unwrap(), MASK);
    }

    #[test]
    fn secrets_are_masked_across_lines() {
        let searcher = secrets().searcher();
        let (_, token, _) = api_token::issue(&SystemPlatform);
        for secret in [token.expose(), KEY] {
            for before in 0..100 {
                let whole = format!("{}{secret}", "-".repeat(before));
                for (encoded, width) in [(STANDARD.encode(&whole), 76), (hex(whole.as_bytes()), 60)] {
                    let lines: Vec<_> =
                        encoded.as_bytes().chunks(width).map(|line| str::from_utf8(line).unwrap()).collect();
                    // The search needs the prefix of a token on one line.
                    let offset = if width == 76 { before * 8 / 6 } else { before * 2 } % width;
                    if offset + 8 > width {
                        continue;
                    }
                    for end in ["\n", "\r\n"] {
                        let masked = searcher.mask(&lines.join(end)).unwrap();
                        let rest = masked.split_once(MASK).unwrap().1;
                        assert!(rest.len() < 8, "{before} before {secret}: {masked}");
                    }
                }
            }
        }
    }

    #[test]
    fn new_keys_are_added_and_old_ones_stay() {
        let secrets = secrets();
        let new = KEY.replace("93ab", "a0b1");
        assert_eq!(secrets.searcher().mask(&new), None);
        secrets.add([&unhex(&new).unwrap().try_into().unwrap()].into_iter());
        assert_eq!(secrets.searcher().mask(&format!("{new} {KEY}")).unwrap(), "*** ***");
    }
}
