//! Rust source split into code, comments and string literals. It is a lexer, not a parser: it knows literals, comments
//! and brackets, which is enough for the tidy rules and for `prose-sample`.

mod items;
mod literals;

use std::ops::RangeInclusive;

use literals::Token;

pub(crate) use items::{Item, ItemKind};

/// Comment or string literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Number of the first line.
    pub(crate) line: usize,
    /// Position in the code.
    offset: usize,
    /// Comment with its slashes, or contents of the literal.
    pub(crate) text: String,
}

/// Lexed Rust file.
pub(crate) struct RustSource<'a> {
    text: &'a str,
    /// Code without comments; literals are empty. It has the lines of the file.
    code: String,
    pub(crate) comments: Vec<Fragment>,
    pub(crate) strings: Vec<Fragment>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl<'a> RustSource<'a> {
    /// Splits the text of a Rust file.
    pub(crate) fn read(text: &'a str) -> Self {
        let mut source = RustSource {
            text,
            code: String::with_capacity(text.len()),
            comments: Vec::new(),
            strings: Vec::new(),
            test_lines: Vec::new(),
        };
        let (mut rest, mut line) = (text, 1);
        while !rest.is_empty() {
            let run_len =
                rest.bytes().position(|byte| matches!(byte, b'/' | b'"' | b'\'')).unwrap_or(rest.len());
            let (token_start, token) = literals::token(rest, run_len);
            let (run, after) = rest.split_at(token_start);
            source.code.push_str(run);
            line += run.matches('\n').count();
            let len = token.as_ref().map_or(after.chars().next().map_or(0, char::len_utf8), Token::len);
            let raw = &after[..len];
            match token {
                None => source.code.push_str(raw),
                Some(Token::Comment(_)) => source.comments.push(source.fragment(line, raw.to_owned())),
                Some(Token::Char(_)) => source.code.push_str("' '"),
                Some(Token::String(_, contents)) => {
                    source.code.push_str(if raw.starts_with('b') { "b" } else { "" });
                    source.strings.push(source.fragment(line, contents));
                    source.code.push_str("\"\"");
                }
            }
            let newlines = raw.matches('\n').count();
            line += newlines;
            source.code.push_str(&"\n".repeat(newlines));
            rest = &after[len..];
        }
        source.test_lines = test_lines(&source.code);
        source
    }

    /// Returns whether the line belongs to an item with `#[cfg(test)]`.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the code before the literal, from the start of its statement or match arm.
    pub(crate) fn statement_before(&self, literal: &Fragment) -> &str {
        let before = &self.code[..literal.offset];
        let start = [";", "{", "}", "=>"].iter().filter_map(|end| Some(before.rfind(end)? + end.len())).max();
        before[start.unwrap_or(0)..].trim()
    }

    fn fragment(&self, line: usize, text: String) -> Fragment {
        Fragment { line, offset: self.code.len(), text }
    }
}

/// Returns the number of the line at the offset.
fn line_at(code: &str, offset: usize) -> usize {
    code[..offset].matches('\n').count() + 1
}

/// Finds the items for tests only, with their attributes.
fn test_lines(code: &str) -> Vec<RangeInclusive<usize>> {
    let mut found = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            let mut depth = 0;
            let end = code[start..].char_indices().find(|(_, char)| {
                match char {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
                depth < 0 || depth == 0 && matches!(char, '}' | ';')
            });
            let end = end.map_or(code.len(), |(at, _)| start + at);
            found.push(line_at(code, start)..=line_at(code, end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(fragments: &[Fragment]) -> Vec<(usize, &str)> {
        fragments.iter().map(|fragment| (fragment.line, &*fragment.text)).collect()
    }

    #[test]
    fn comments_strings_and_code_are_separated() {
        let text = "// a \"b\"\nlet c = \"d // e\\n\"; // f\nlet g = ('\"', '\\'', 'h');\nlet i: &'j str = r#\"k\"l\"#;\n\
                    /* m\n \"n\" */ let o = \"p \\\n    q\";\nlet var = b\"r\";\n";
        let source = RustSource::read(text);
        assert_eq!(texts(&source.comments), [(1, "// a \"b\""), (2, "// f"), (5, "/* m\n \"n\" */")]);
        assert_eq!(texts(&source.strings), [(2, "d // e\n"), (4, "k\"l"), (6, "p q"), (8, "r")]);
        let code = "\nlet c = \"\"; \nlet g = (' ', ' ', ' ');\nlet i: &'j str = \"\";\n\n let o = \"\"\n;\nlet var = b\"\";\n";
        assert_eq!(source.code, code);
    }

    #[test]
    fn items_for_tests_are_recognized() {
        let text = "fn a() {}\n#[cfg(test)]\nmod b;\nfn c() {}\nimpl D {\n    #[cfg(test)]\n    fn e(f: [u8; 2]) {\n    }\n    \
                    fn g() {}\n}\n#[cfg(all(test, unix))]\nmod h {\n    fn i() { \"}\" }\n}\nfn j() {}\n";
        let source = RustSource::read(text);
        let lines: Vec<_> = (1..=15).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(lines, [2, 3, 6, 7, 8, 11, 12, 13, 14]);
    }

    #[test]
    fn a_statement_ends_before_the_literal() {
        let source = RustSource::read("a(); let b = match c { d => e(f, \"g\"), _ => \"h\" };");
        let statements = source.strings.iter().map(|literal| source.statement_before(literal));
        assert_eq!(statements.collect::<Vec<_>>(), ["e(f,", ""]);
    }
}
