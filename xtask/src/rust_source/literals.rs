//! Lexical rules of Rust comments, string literals and character literals.

const STRING_PREFIXES: [&str; 6] = ["", "b", "c", "r", "br", "cr"];

/// Comment or literal, with its length.
pub(super) enum Token {
    Comment(usize),
    /// Character literal.
    Char(usize),
    /// String literal with its contents.
    String(usize, String),
}

impl Token {
    pub(super) fn len(&self) -> usize {
        let (Token::Comment(len) | Token::Char(len) | Token::String(len, _)) = self;
        *len
    }
}

/// Reads the token at the slash or quote at `at`. Returns its start, which includes the prefix of a string, or `at` if
/// there is no token.
pub(super) fn token(text: &str, at: usize) -> (usize, Option<Token>) {
    let (before, after) = text.split_at(at);
    if after.starts_with('"') {
        let plain = before.trim_end_matches('#').trim_end_matches(['b', 'c', 'r']);
        let starts = [plain.len(), at].into_iter().filter(|start| !before[..*start].ends_with(is_word_part));
        let mut found = starts.filter_map(|start| Some((start, string(&text[start..])?)));
        return found
            .next()
            .map_or((at, None), |(start, (len, contents))| (start, Some(Token::String(len, contents))));
    }
    let comment = comment_len(after).map(Token::Comment);
    (at, comment.or_else(|| char_len(after).map(Token::Char)))
}

/// Returns whether the character can be in an identifier.
pub(super) fn is_word_part(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Returns the length of the comment at the start of the text.
fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.strip_prefix("/*")?;
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let next = &text[at..];
        if next.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if next.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += next.chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(text.len())
}

/// Returns the length and the contents of the string literal at the start of the text.
fn string(text: &str) -> Option<(usize, String)> {
    let prefix_len = text.find(|char| !matches!(char, 'b' | 'c' | 'r'))?;
    let (prefix, after) = text.split_at(prefix_len);
    STRING_PREFIXES.iter().find(|known| **known == prefix)?;
    let is_raw = prefix.contains('r');
    let hashes = if is_raw { after.len() - after.trim_start_matches('#').len() } else { 0 };
    let body = after[hashes..].strip_prefix('"')?;
    let end = if is_raw { body.find(&format!("\"{}", "#".repeat(hashes)))? } else { closing_quote(body)? };
    let contents = if is_raw { body[..end].to_owned() } else { unescape(&body[..end]) };
    Some((prefix_len + 2 * hashes + end + 2, contents))
}

/// Returns the length of the character literal at the start of the text. A lifetime is not one.
fn char_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    if body.starts_with('\\') {
        return Some(text.get(3..)?.find('\'')? + 4);
    }
    let len = body.chars().next()?.len_utf8();
    body[len..].starts_with('\'').then_some(len + 2)
}

fn closing_quote(body: &str) -> Option<usize> {
    let mut is_escaped = false;
    body.find(|char| {
        let is_end = char == '"' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_end
    })
}

/// Replaces the escapes of quotes, backslashes and line breaks; leaves the others as they are.
fn unescape(body: &str) -> String {
    let mut contents = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once('\\') {
        contents.push_str(before);
        let escape = after.chars().next();
        let after = escape.map_or("", |char| &after[char.len_utf8()..]);
        rest = after;
        match escape {
            Some('\n') => rest = after.trim_start(),
            Some('n') => contents.push('\n'),
            Some(quoted @ ('"' | '\'' | '\\')) => contents.push(quoted),
            Some(other) => contents.extend(['\\', other]),
            None => {}
        }
    }
    contents + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_comments() {
        assert_eq!(comment_len("// a\nb"), Some(4));
        assert_eq!(comment_len("/* a /* b */ c */ d"), Some(17));
        assert_eq!(comment_len("/ a"), None);
    }

    #[test]
    fn contents_of_strings() {
        assert_eq!(string(r#""a\"b\\" c"#), Some((8, "a\"b\\".to_owned())));
        assert_eq!(string("br##\"a\"#b\"## c"), Some((12, "a\"#b".to_owned())));
        assert_eq!(string(r#""\u{e9}\t""#), Some((10, r"\u{e9}\t".to_owned())));
        assert_eq!(string("r#type"), None);
        assert_eq!(string("bc\"a\""), None);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        assert_eq!(char_len("'a' b"), Some(3));
        assert_eq!(char_len(r"'\'' b"), Some(4));
        assert_eq!(char_len(r"'\u{e9}' b"), Some(8));
        assert_eq!(char_len("'é'"), Some(4));
        assert_eq!(char_len("'a str"), None);
    }
}
