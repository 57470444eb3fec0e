//! Text helpers: shortening, invisible characters and hexadecimal.

use linchpin::hidden_characters::is_hidden;

use crate::error::{Error, Result};

/// Shortens untrusted text for use within a message: one line of at most 40 characters.
pub fn shorten(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(40).collect()
}

/// Returns the first line of an untrusted text, with invisible characters escaped, at most 500 characters.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    escape_invisible(line).chars().take(500).collect()
}

/// Returns whether a character is invisible, changes the text direction, or is a control character other than a line
/// feed.
pub(crate) fn is_invisible(char: char) -> bool {
    is_hidden(char) || (char.is_control() && char != '\n')
}

/// Escapes control characters, invisible characters and those that change the text direction.
pub fn escape_invisible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if is_invisible(char) { out.extend(char.escape_unicode()) } else { out.push(char) }
    }
    out
}

/// Rejects a text that is not one line of visible characters.
pub(crate) fn check_visible_line(field: &str, text: &str) -> Result<()> {
    let hidden = text.chars().find(|char| *char == '\n' || is_invisible(*char));
    hidden.map_or(Ok(()), |char| {
        let text = format!(
            "must not contain control, invisible or direction characters: remove U+{:04X}",
            u32::from(char)
        );
        Err(Error::invalid(field, text))
    })
}

/// Encodes bytes in lowercase hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Decodes lowercase hexadecimal, as written by [`hex`].
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_again() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)), Some(all));
        assert_eq!((unhex(""), hex(&[0, 0xaf])), (Some(vec![]), "00af".into()));
        for bad in ["0", "0g", "0G", "AF", "é", "+1"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
