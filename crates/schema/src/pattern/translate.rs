//! Translation from ECMA-262 syntax to the syntax of the engine. Everything that is special in either syntax is
//! rewritten, so that nothing changes its meaning.

use std::fmt::Write;
use std::str::Chars;

const DIGIT: &str = "[0-9]";
const NON_DIGIT: &str = "[^0-9]";
const WORD: &str = "[0-9A-Za-z_]";
const NON_WORD: &str = "[^0-9A-Za-z_]";
const SPACE: &str =
    r"[\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}]";
const NON_SPACE: &str =
    r"[^\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}]";
const ANY_EXCEPT_NEWLINE: &str = r"[^\n\r\x{2028}\x{2029}]";
const ANY: &str = r"[\x{0}-\x{10FFFF}]";
const MATCHES_NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// Translates a JSON Schema pattern into the syntax of the `regex` crate, or returns why it is not supported.
pub(super) fn translate(source: &str) -> Result<String, String> {
    let mut translator = Translator { rest: source.chars(), out: String::new(), repeatable: false };
    while let Some(next) = translator.rest.next() {
        translator.term(next)?;
    }
    Ok(translator.out)
}

struct Translator<'a> {
    rest: Chars<'a>,
    out: String,
    /// Whether a quantifier is allowed at this position.
    repeatable: bool,
}

/// Part of a pattern that matches exactly one character: a literal character, or a set of characters.
enum Atom {
    Char(char),
    Set(String),
}

impl Translator<'_> {
    fn term(&mut self, next: char) -> Result<(), String> {
        match next {
            '(' => return self.group(),
            '*' | '+' | '?' => return self.quantifier(&next.to_string()),
            '{' => {
                if let Some(counts) = self.counts() {
                    return self.quantifier(&counts);
                }
                literal(&mut self.out, '{');
            }
            '|' | '^' | '$' => {
                self.out.push(next);
                self.repeatable = false;
                return Ok(());
            }
            '\\' => match self.peek() {
                Some(boundary @ ('b' | 'B')) => {
                    self.rest.next();
                    self.out.push_str(if boundary == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                    self.repeatable = false;
                    return Ok(());
                }
                _ => match self.escape()? {
                    Atom::Char(one) => literal(&mut self.out, one),
                    Atom::Set(set) => self.out.push_str(&set),
                },
            },
            '[' => self.class()?,
            ')' => self.out.push(')'),
            '.' => self.out.push_str(ANY_EXCEPT_NEWLINE),
            one => literal(&mut self.out, one),
        }
        self.repeatable = true;
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn skip(&mut self, prefix: &str) -> bool {
        match self.rest.as_str().strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest.chars();
                true
            }
            None => false,
        }
    }

    /// Translates the start of a group of a pattern. All groups become non-capturing.
    fn group(&mut self) -> Result<(), String> {
        self.repeatable = false;
        for (prefix, name) in
            [("?=", "lookahead"), ("?!", "lookahead"), ("?<=", "lookbehind"), ("?<!", "lookbehind")]
        {
            if self.skip(prefix) {
                return Err(format!("a {name} is not supported"));
            }
        }
        for flags in ["?i:", "?-i:", "?i)"] {
            if self.skip(flags) {
                self.out.push('(');
                self.out.push_str(flags);
                return Ok(());
            }
        }
        if self.skip("?<") {
            let Some((_, rest)) = self.rest.as_str().split_once('>') else {
                return Err("a group has an unterminated name".into());
            };
            self.rest = rest.chars();
        } else if !self.skip("?:") && self.peek() == Some('?') {
            return Err("an unsupported group type is used".into());
        }
        self.out.push_str("(?:");
        Ok(())
    }

    fn quantifier(&mut self, text: &str) -> Result<(), String> {
        if !self.repeatable {
            return Err(format!("the quantifier {text} has nothing to repeat"));
        }
        self.out.push_str(text);
        if self.skip("?") {
            self.out.push('?');
        }
        self.repeatable = false;
        Ok(())
    }

    /// Reads the rest of a quantifier, `{2}`, `{2,}` or `{2,3}`. Other braces are literals.
    fn counts(&mut self) -> Option<String> {
        let (counts, rest) = self.rest.as_str().split_once('}')?;
        let (min, max) = counts.split_once(',').unwrap_or((counts, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if min.is_empty() || !is_number(min) || !is_number(max) {
            return None;
        }
        let text = format!("{{{counts}}}");
        self.rest = rest.chars();
        Some(text)
    }

    fn class(&mut self) -> Result<(), String> {
        let negated = self.skip("^");
        if self.skip("]") {
            self.out.push_str(if negated { ANY } else { MATCHES_NOTHING });
            return Ok(());
        }
        self.out.push_str(if negated { "[^" } else { "[" });
        while let Some(first) = self.class_atom()? {
            let mut lookahead = self.rest.clone();
            let is_range = lookahead.next() == Some('-') && lookahead.next().is_some_and(|next| next != ']');
            match first {
                Atom::Set(set) => self.out.push_str(&set),
                Atom::Char(first) if is_range => {
                    self.rest.next();
                    match self.class_atom()? {
                        Some(Atom::Char(last)) if last < first => {
                            return Err(format!("a range is out of order: from {first:?} to {last:?}"));
                        }
                        Some(Atom::Char(last)) => {
                            literal(&mut self.out, first);
                            self.out.push('-');
                            literal(&mut self.out, last);
                        }
                        Some(Atom::Set(set)) => {
                            literal(&mut self.out, first);
                            literal(&mut self.out, '-');
                            self.out.push_str(&set);
                        }
                        None => break,
                    }
                }
                Atom::Char(first) => literal(&mut self.out, first),
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// Returns the next member of a character class of a regular expression, or `None` at its end.
    fn class_atom(&mut self) -> Result<Option<Atom>, String> {
        match self.rest.next() {
            None => Err("a `[` starts an unterminated class".into()),
            Some(']') => Ok(None),
            Some('\\') if self.skip("b") => Ok(Some(Atom::Char('\u{8}'))),
            Some('\\') => self.escape().map(Some),
            Some(one) => Ok(Some(Atom::Char(one))),
        }
    }

    /// Translates an escape sequence of a pattern, after its backslash.
    fn escape(&mut self) -> Result<Atom, String> {
        let set = |set: &str| Ok(Atom::Set(set.to_owned()));
        let Some(next) = self.rest.next() else { return Err("the pattern ends in a backslash".into()) };
        let one = match next {
            'd' => return set(DIGIT),
            'D' => return set(NON_DIGIT),
            'w' => return set(WORD),
            'W' => return set(NON_WORD),
            's' => return set(SPACE),
            'S' => return set(NON_SPACE),
            'p' | 'P' => return self.property(next),
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            'x' => {
                self.hex(2).and_then(char::from_u32).ok_or("\\x is used without two hexadecimal digits")?
            }
            'u' => self.unicode()?,
            'c' => match self.rest.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
                _ => return Err("\\c is used without a letter".into()),
            },
            '0' if !self.peek().is_some_and(|next| next.is_ascii_digit()) => '\0',
            '0'..='9' | 'k' => return Err("a backreference is not supported".into()),
            other if other.is_alphanumeric() => return Err(format!("unknown escape \\{other}")),
            other => other,
        };
        Ok(Atom::Char(one))
    }

    fn property(&mut self, kind: char) -> Result<Atom, String> {
        let name = self.rest.as_str().strip_prefix('{').and_then(|rest| rest.split_once('}'));
        match name {
            Some((name, rest))
                if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=".contains(&byte)) =>
            {
                self.rest = rest.chars();
                Ok(Atom::Set(format!("\\{kind}{{{name}}}")))
            }
            _ => Err(format!("\\{kind} is used without a property in braces")),
        }
    }

    fn unicode(&mut self) -> Result<char, String> {
        const INVALID_UNICODE_ESCAPE: &str = "a \\u escape is invalid";
        if let Some((digits, rest)) =
            self.rest.as_str().strip_prefix('{').and_then(|rest| rest.split_once('}'))
        {
            self.rest = rest.chars();
            let code = u32::from_str_radix(digits, 16).ok();
            return Ok(code.and_then(char::from_u32).ok_or(INVALID_UNICODE_ESCAPE)?);
        }
        let code = self.hex(4).ok_or(INVALID_UNICODE_ESCAPE)?;
        if !(0xD800..0xDC00).contains(&code) {
            return Ok(char::from_u32(code).ok_or(INVALID_UNICODE_ESCAPE)?);
        }
        let low = if self.skip("\\u") { self.hex(4) } else { None };
        let low = low.filter(|low| (0xDC00..0xE000).contains(low)).ok_or(INVALID_UNICODE_ESCAPE)?;
        Ok(char::from_u32(0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00))
            .ok_or(INVALID_UNICODE_ESCAPE)?)
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.rest.as_str().get(..digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = self.rest.as_str().get(digits..)?.chars();
        u32::from_str_radix(text, 16).ok()
    }
}

/// Appends a literal character that is valid inside and outside of classes.
fn literal(out: &mut String, one: char) {
    if one.is_ascii() && !one.is_ascii_alphanumeric() {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(one));
    } else {
        out.push(one);
    }
}
