//! JSON strings as bytes: end detection, unescaping and escaping. Processes eight bytes at a time in short strings and
//! 32 in long ones. Strings without escapes are not copied when read.

use std::borrow::Cow;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// Returns the index of the first byte that needs escaping in a JSON string (`"`, `\` or a control character), or
/// `bytes.len()` if there is none.
#[inline]
pub fn find_special(bytes: &[u8]) -> usize {
    // Most strings are short keys or words: one or two machine words are enough.
    let Some((first, rest)) = bytes.split_first_chunk() else { return find_in_words(bytes) };
    let marks = mark_special_bytes(*first);
    if marks != 0 {
        return first_marked_byte(marks);
    }
    let Some((second, rest)) = rest.split_first_chunk() else { return 8 + find_in_words(rest) };
    let marks = mark_special_bytes(*second);
    if marks != 0 {
        return 8 + first_marked_byte(marks);
    }
    16 + find_in_chunks(rest)
}

/// Returns the index of the first byte that needs escaping, like [`find_special`], optimized for long text. Used after
/// an escape, where more text usually follows.
pub(crate) fn find_in_chunks(bytes: &[u8]) -> usize {
    let (chunks, rest) = bytes.as_chunks::<32>();
    for (index, chunk) in chunks.iter().enumerate() {
        if has_special(chunk) {
            return 32 * index + find_in_words(chunk);
        }
    }
    32 * chunks.len() + find_in_words(rest)
}

fn find_in_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, &word) in words.iter().enumerate() {
        let marks = mark_special_bytes(word);
        if marks != 0 {
            return 8 * index + first_marked_byte(marks);
        }
    }
    let found = rest.iter().position(|&byte| is_special(byte));
    8 * words.len() + found.unwrap_or(rest.len())
}

/// Returns a word in which the highest bit of each byte that needs escaping in a JSON string is set. A borrow can set
/// it for a later byte by mistake, but never for an earlier one: the first mark is always correct.
fn mark_special_bytes(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let control = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    (control | quote | backslash) & !word & HIGH
}

fn first_marked_byte(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// Reports whether a chunk of a JSON string contains a byte that needs escaping. Written so that it compiles to vector
/// code: each of the three terms is zero for a special byte, and the minimum over the chunk decides.
fn has_special(chunk: &[u8; 32]) -> bool {
    let difference = |byte: u8| byte.saturating_sub(0x1f).min(byte ^ b'"').min(byte ^ b'\\');
    chunk.iter().fold(u8::MAX, |least, &byte| least.min(difference(byte))) == 0
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Unescapes the content of a JSON string that the scanner has accepted.
///
/// Never panics on other text: invalid escapes are copied unchanged.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', raw.as_bytes()) else { return Cow::Borrowed(raw) };
    let mut text = String::with_capacity(raw.len());
    let (plain, mut rest) = raw.split_at(first);
    text.push_str(plain);
    loop {
        let Some((char, length)) = escape(rest) else {
            text.push('\\');
            rest = &rest[1..];
            if !copy_plain(&mut rest, &mut text) {
                return Cow::Owned(text);
            }
            continue;
        };
        text.push(char);
        rest = &rest[length..];
        if !copy_plain(&mut rest, &mut text) {
            return Cow::Owned(text);
        }
    }
}

/// Copies the text of a JSON string up to the next backslash. Returns `false` at the end of the text.
fn copy_plain(rest: &mut &str, text: &mut String) -> bool {
    let plain = memchr::memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
    text.push_str(&rest[..plain]);
    *rest = &rest[plain..];
    !rest.is_empty()
}

/// Decodes the escape sequence at the start of `text`. Returns the character and the length of the sequence, or `None`
/// if the sequence is invalid, for example a lone surrogate.
pub(crate) fn escape(text: &str) -> Option<(char, usize)> {
    let char = match text.as_bytes().get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(text),
        _ => return None,
    };
    Some((char, 2))
}

fn unicode_escape(text: &str) -> Option<(char, usize)> {
    let high = hex4(text.get(2..6)?)?;
    if !(0xD800..0xE000).contains(&high) {
        return Some((char::from_u32(high)?, 6));
    }
    let low = hex4(text.get(6..12)?.strip_prefix("\\u")?)?;
    if high >= 0xDC00 || !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    Some((char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?, 12))
}

fn hex4(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(text, 16).ok())?
}

/// Replaces the line breaks in JSON, which would end a message on stdio, by spaces. In valid JSON they occur only between
/// tokens: strings contain them in escaped form.
pub fn replace_line_breaks(json: &mut [u8]) {
    let mut rest = json;
    while let Some(index) = memchr::memchr2(b'\n', b'\r', rest) {
        rest[index] = b' ';
        rest = &mut rest[index + 1..];
    }
}

/// Appends `text` as a JSON string, quotes included.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` escaped for a JSON string, without the quotes.
pub fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    let mut plain = find_special(rest);
    loop {
        out.extend_from_slice(&rest[..plain]);
        let Some(&special) = rest.get(plain) else { return };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        rest = &rest[plain + 1..];
        plain = find_in_chunks(rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_survives_escaping(text in ".*") {
            let mut json = Vec::new();
            write_string(&text, &mut json);
            let json = String::from_utf8(json).unwrap();
            prop_assert_eq!(&serde_json::from_str::<String>(&json).unwrap(), &text);
            prop_assert_eq!(unescape(&json[1..json.len() - 1]), text);
        }

        #[test]
        fn the_first_special_byte_is_found(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let expected = bytes.iter().position(|&byte| is_special(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(find_special(&bytes), expected);
        }

        #[test]
        fn unescaping_never_panics(raw in "(\\\\|[u\"0-9a-fD8/n]|é)*") {
            let _ = unescape(&raw);
        }
    }

    #[test]
    fn surrogate_pairs_join_and_lone_ones_are_refused() {
        assert_eq!(unescape(r"\ud83d\ude00"), "😀");
        assert_eq!(escape(r"\ud83d"), None);
        assert_eq!(escape(r"\ude00\ud83d"), None);
        assert_eq!(escape(r"\ud83d\u0041"), None);
    }

    #[test]
    fn long_text_is_searched_in_large_steps_and_small_ones() {
        for length in [0, 7, 8, 31, 32, 33, 63, 64, 65, 127, 400] {
            for special in ["\"", "\\", "\n", "\u{1}"] {
                let text = "x".repeat(length);
                assert_eq!(find_special(text.as_bytes()), length);
                assert_eq!(find_special(format!("{text}{special}tail").as_bytes()), length);
            }
        }
    }
}
