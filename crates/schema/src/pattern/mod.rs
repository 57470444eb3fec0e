//! Patterns: regular expressions of ECMA-262, translated for a linear-time engine.
//!
//! Constructs that such an engine does not support (lookaround, backreferences), and constructs that would have a
//! different meaning than in ECMA-262, are rejected by name.

mod translate;

use regex::{Regex, RegexBuilder};

use translate::translate;

/// Maximum length of a regular expression (`pattern`) in bytes.
const MAX_SOURCE_BYTES: usize = 16_384;
/// Sizes of the compiled program to try, in bytes, and the resulting cost per byte of text. The worst case of the
/// engine is text size times program size.
const PROGRAM_SIZES: [(usize, u64); 4] = [(1 << 12, 1), (1 << 15, 8), (1 << 18, 64), (1 << 20, 256)];
/// Cache size per pattern and thread, in bytes.
const CACHE_BYTES: usize = 1 << 18;

/// Compiled regular expression of the keyword `pattern`.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Box<str>,
    regex: Regex,
    /// Cost of matching the pattern, per byte of text.
    pub(crate) weight: u64,
}

impl Pattern {
    /// Compiles a pattern within `bytes_left` bytes, and subtracts the size limit of the program from `bytes_left`.
    pub(crate) fn new(source: &str, bytes_left: &mut usize) -> Result<Self, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!("the pattern is longer than {MAX_SOURCE_BYTES} bytes"));
        }
        let fault = |reason: &str| format!("the pattern {source:?} {reason}");
        let translated = translate(source).map_err(|reason| fault(&format!("is invalid: {reason}")))?;
        for (size, weight) in PROGRAM_SIZES.into_iter().take_while(|(size, _)| *size <= *bytes_left) {
            match RegexBuilder::new(&translated).size_limit(size).dfa_size_limit(CACHE_BYTES).build() {
                Ok(regex) => {
                    *bytes_left -= size;
                    return Ok(Self { source: source.into(), regex, weight });
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    let text = error.to_string();
                    let reason = text.lines().last().unwrap_or_default();
                    return Err(fault(&format!(
                        "is not a valid regular expression: {}",
                        reason.trim_start_matches("error: ")
                    )));
                }
            }
        }
        Err(fault("is too large, alone or together with earlier patterns"))
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(source: &str) -> Result<Pattern, String> {
        Pattern::new(source, &mut (1 << 20))
    }

    #[test]
    fn patterns_mean_what_they_mean_in_ecma_262() {
        for (source, yes, no) in [
            ("", vec!["", "a"], vec![]),
            ("b", vec!["abc"], vec!["ac"]),
            ("^a.c$", vec!["abc", "aéc", "a😀c"], vec!["a\nc", "a\rc", "a\u{2028}c", "abc\n", "xabc"]),
            (r"^\d+$", vec!["0123"], vec!["٣", "", "1a"]),
            (r"^\D$", vec!["٣", "a"], vec!["1"]),
            (r"^\w\W$", vec!["a-", "_é"], vec!["é-", "aa"]),
            (r"^\s\S$", vec![" a", "\u{feff}b", "\u{b}c", "\u{2029}d"], vec!["aa", "\u{85}a", "  "]),
            (r"^[\d\s_-]+$", vec!["1 _-2"], vec!["a"]),
            (r"^[^\W]$", vec!["a"], vec!["-", "é"]),
            (r"^a\/b\-c\.d$", vec!["a/b-c.d"], vec!["a/b-cxd"]),
            (r"^\x41\u0042\u{43}\cJ\0\t$", vec!["ABC\n\0\t"], vec!["ABC"]),
            (r"^\uD83D\uDE00$", vec!["😀"], vec!["😁"]),
            (r"^[\u{1F600}-\u{1F601}\b]$", vec!["😀", "😁", "\u{8}"], vec!["b", "😂"]),
            (r"^\p{Lu}\P{Lu}\p{Script=Greek}$", vec!["Éaλ"], vec!["eaλ", "Éal"]),
            (r"\bfoo\b", vec!["a foo b", "éfoo"], vec!["foob"]),
            (r"^a\Bb$", vec!["ab"], vec!["a b"]),
            ("^(?<year>a|b)(?:c|)(d)?$", vec!["acd", "b"], vec!["c"]),
            ("^a{2}b{1,}c{0,1}$", vec!["aab", "aabbc"], vec!["ab", "aabcc"]),
            ("^{a}b{,2}{$", vec!["{a}b{,2}{"], vec!["a"]),
            ("^a*?b+?c??$", vec!["b", "aabc"], vec!["a"]),
            ("^[]$", vec![], vec!["", "a"]),
            ("^[^]$", vec!["a", "\n", "😀"], vec![""]),
            ("^[-[&&~~a]$", vec!["[", "&", "~", "-", "a"], vec!["b", "]"]),
            ("^[a-]$", vec!["a", "-"], vec!["b"]),
            (r"^[\w-.]$", vec!["a", "-", "."], vec!["+"]),
            (r"^[+-\d]$", vec!["+", "-", "5"], vec![",", "."]),
            ("^[<>]#x y$", vec!["<#x y"], vec!["<xy"]),
            ("(?i)^straße$", vec!["STRAßE"], vec!["strase"]),
            ("^(?i:a)b$", vec!["Ab", "ab"], vec!["aB"]),
            ("^]$", vec!["]"], vec!["["]),
            ("^(a|b)*c(a|b){20}$", vec!["abcabababababababababab"], vec!["c"]),
        ] {
            let pattern = compile(source).unwrap_or_else(|reason| panic!("{reason}"));
            for text in yes {
                assert!(pattern.is_match(text), "{source} should match {text:?}");
            }
            for text in no {
                assert!(!pattern.is_match(text), "{source} should not match {text:?}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (source, reason) in [
            ("(?=a)", "lookahead"),
            ("(?!a)", "lookahead"),
            ("(?<=a)", "lookbehind"),
            ("(?<!a)", "lookbehind"),
            (r"(a)\1", "backreference"),
            (r"(?<n>a)\k<n>", "backreference"),
            ("(?>a)", "unsupported group"),
            ("(?<n", "unterminated name"),
            ("(", "unclosed group"),
            (")", "unopened group"),
            ("a)(", "unopened group"),
            ("[a", "unterminated class"),
            ("[a-", "unterminated class"),
            ("[b-a]", "out of order"),
            ("*a", "nothing to repeat"),
            ("a**", "nothing to repeat"),
            ("a|+", "nothing to repeat"),
            ("^{2}", "nothing to repeat"),
            ("a{3,2}", "not a valid regular expression"),
            ("a{99999999999}", "not a valid regular expression"),
            ("\\", "backslash"),
            (r"\xg1", "\\x"),
            (r"\u12", "\\u"),
            (r"\uD800", "\\u"),
            (r"\u{110000}", "\\u"),
            (r"\c1", "\\c"),
            (r"\A", "unknown escape \\A"),
            (r"\p{Nope}", "not a valid regular expression"),
            (r"\pL", "without a property"),
            (r"\01", "backreference"),
            ("((a{100}){100}){100}", "too large"),
        ] {
            let error = compile(source).map(|_| ()).unwrap_err();
            assert!(error.contains(reason) && error.contains(&format!("{source:?}")), "{source}: {error}");
        }
        assert!(compile(&"a".repeat(20_000)).unwrap_err().contains("longer than"));
        assert!(compile(&"(".repeat(10_000)).is_err(), "nesting is bounded");
    }

    #[test]
    fn room_runs_out_and_weight_grows_with_the_program() {
        let mut bytes_left = 10_000;
        assert_eq!(Pattern::new("^[a-z]+$", &mut bytes_left).unwrap().weight, 1);
        Pattern::new("^[a-z]+$", &mut bytes_left).unwrap();
        assert!(Pattern::new("^[a-z]+$", &mut bytes_left).unwrap_err().contains("too large"));
        assert!(compile("^[a-z]{1000}$").unwrap().weight > 1);
    }
}
