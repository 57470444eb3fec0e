//! Sanitizing, wrapping and shortening of untrusted text for the terminal.

/// Replaces control and hidden characters: a server must not move the cursor, hide part of a prompt, or reverse the
/// characters of a URL.
pub(crate) fn sanitize(text: &str) -> String {
    let replace_hidden = |char: char| if is_hidden(char) { char::REPLACEMENT_CHARACTER } else { char };
    text.replace("\r\n", "\n").chars().map(replace_hidden).collect()
}

fn is_hidden(char: char) -> bool {
    // Joiners and variation selectors are parts of words and emoji and do not move the cursor.
    let is_joiner = matches!(char, '\u{200C}' | '\u{200D}' | '\u{FE00}'..='\u{FE0F}');
    let is_format = linchpin::hidden_characters::is_hidden(char) && !is_joiner;
    is_format || (char.is_control() && !matches!(char, '\n' | '\t'))
}

/// Quotes a word for a shell.
pub(crate) fn shell_quote(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "-_./:@=,+%".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Sanitizes a text and joins its words with single spaces on one line.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first paragraph of a text on one line, without Markdown headings before it.
pub(crate) fn first_paragraph(text: &str) -> String {
    let text = sanitize(text);
    let is_empty = |line: &&str| line.trim().is_empty();
    let lines = || text.lines().skip_while(is_empty);
    let body =
        lines().skip_while(|line| is_empty(line) || line.starts_with('#')).take_while(|line| !is_empty(line));
    let first = one_line(&body.collect::<Vec<_>>().join(" "));
    if first.is_empty() { one_line(lines().next().unwrap_or_default()) } else { first }
}

/// Wraps a text into lines of at most `width` columns. A longer word is not broken, so that a URL can be copied.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line_width): (Vec<String>, usize) = (Vec::new(), 0);
    for word in text.split_whitespace() {
        let word_width = display_width(word);
        match lines.last_mut() {
            Some(line) if line_width + 1 + word_width <= width => {
                line.push(' ');
                line.push_str(word);
                line_width += 1 + word_width;
            }
            _ => {
                lines.push(word.to_owned());
                line_width = word_width;
            }
        }
    }
    lines
}

/// Shortens a text to at most `width` columns, ending with `…`.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut left = width.saturating_sub(1);
    for char in text.chars() {
        let Some(rest) = left.checked_sub(char_width(char)) else { break };
        left = rest;
        short.push(char);
    }
    short + "…"
}

/// Returns the approximate number of terminal columns of a text, for alignment.
pub(crate) fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(char: char) -> usize {
    match u32::from(char) {
        0x0300..=0x036F | 0x200C..=0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_speak_to_the_terminal() {
        assert_eq!(sanitize("a\x1b[2Jb\tc\r\nd\re\u{202E}f"), "a\u{FFFD}[2Jb\tc\nd\u{FFFD}e\u{FFFD}f");
        assert_eq!(one_line("  one\n two \t three "), "one two three");
        assert_eq!(first_paragraph("\n one\ntwo\n\nthree"), "one two");
        assert_eq!(first_paragraph("# One\n\n## Two\nthree\n\nfour"), "three");
        assert_eq!(first_paragraph("# One"), "# One");
        assert_eq!(first_paragraph(""), "");
    }

    #[test]
    fn lines_fit() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a https://example.com/long b", 6), ["a", "https://example.com/long", "b"]);
        assert_eq!(wrap("漢字 漢字", 4), ["漢字", "漢字"]);
        assert!(wrap(" ", 4).is_empty());
        assert_eq!(truncate("abcdef", 6), "abcdef");
        assert_eq!(truncate("abcdefg", 6), "abcde…");
        assert_eq!(truncate("漢字漢字", 6), "漢字…");
    }
}
