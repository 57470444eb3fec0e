//! Rules: vague constant names, and phrases that `docs/dev/style.md` replaces by plain words.
//!
//! The words are concatenated from parts, so that this file passes its own rules.

use super::exceptions::{Exception, Exceptions};
use super::{Finding, SourceFile, rust};
use crate::rust_source::{ItemKind, RustSource};

const VAGUE_PREFIXES: [&str; 5] = [
    concat!("MO", "ST"),
    concat!("LONG", "EST"),
    concat!("LARG", "EST"),
    concat!("SHORT", "EST"),
    concat!("PAT", "IENCE"),
];

const PHRASES: [&str; 7] = [
    concat!("when nothing", " is said"),
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("under", " way"),
    concat!("what came", " of"),
    concat!("in good", " order"),
];

/// Quotes the phrases as bad examples.
const STYLE_GUIDE: &str = "docs/dev/style.md";

/// Phrases that are data in these files, not prose.
const EXCEPTIONS: &[Exception] = &[
    // Id of a response that belongs to no request.
    ("crates/sdk/src/testing/faults/plan.rs", PHRASES[3]),
    // Name of a Unix user.
    ("crates/test-postgres/src/installation.rs", PHRASES[3]),
];

pub(super) fn constants_state_their_unit_or_limit(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Lexing is slow: skip the files without the words.
    let may_contain = |file: &&SourceFile| VAGUE_PREFIXES.iter().any(|prefix| file.text.contains(prefix));
    for file in rust(files).filter(may_contain) {
        let items = RustSource::read(&file.text).items();
        for item in items.iter().filter(|item| item.kind == ItemKind::Constant) {
            if let Some(prefix) = VAGUE_PREFIXES.iter().find(|prefix| item.name.starts_with(**prefix)) {
                let advice = format!("\"{prefix}\": name it MAX_…, MIN_…, …_LEN, …_BYTES or …_TIMEOUT");
                findings.push(file.finding(item.line, advice));
            }
        }
    }
    findings
}

pub(super) fn prose_uses_plain_words(files: &[SourceFile]) -> Vec<Finding> {
    plain_words(files, EXCEPTIONS)
}

fn plain_words(files: &[SourceFile], exceptions: &[Exception]) -> Vec<Finding> {
    let mut exceptions = Exceptions::new(exceptions, "xtask/src/tidy/prose.rs");
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| may_contain_phrase(&file.text)) {
        for (line, phrase) in phrases_in(&prose(file)) {
            if !exceptions.allow(&file.path, phrase) {
                findings
                    .push(file.finding(line, format!("\"{phrase}\": use plain words, see {STYLE_GUIDE}")));
            }
        }
    }
    findings.extend(exceptions.unused());
    findings
}

fn may_contain_phrase(text: &str) -> bool {
    let text = text.to_lowercase();
    PHRASES.iter().any(|phrase| phrase.split(' ').all(|word| text.contains(word)))
}

/// Returns the lines of comments and string literals, or all lines of a document.
fn prose(file: &SourceFile) -> Vec<(usize, String)> {
    if file.is_rust() && file.path.starts_with("crates/") && file.path.contains("/src/") {
        let source = RustSource::read(&file.text);
        let fragments = source.comments.into_iter().chain(source.strings);
        let lines = fragments.flat_map(|fragment| {
            let lines: Vec<_> = fragment.text.lines().map(str::to_owned).collect();
            lines.into_iter().enumerate().map(move |(index, line)| (fragment.line + index, line))
        });
        return lines.collect();
    }
    let is_document =
        file.path.starts_with("docs/") || matches!(&*file.path, "README.md" | "ARCHITECTURE.md");
    let lines = file.lines().filter(|_| is_document && !file.is_rust() && file.path != STYLE_GUIDE);
    lines.map(|(number, line)| (number, line.to_owned())).collect()
}

/// Finds the phrases. A phrase may continue on the next line.
fn phrases_in(lines: &[(usize, String)]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        let line = line.trim().to_lowercase();
        let next = lines.get(index + 1).filter(|(next, _)| *next == number + 1);
        let next = next.map(|(_, next)| next.trim().trim_start_matches(['/', '!', ' ']).to_lowercase());
        let text = format!("{line} {}", next.unwrap_or_default());
        for phrase in PHRASES {
            let mut starts = text.match_indices(phrase).map(|(start, _)| start);
            if starts.any(|start| start < line.len() && is_whole(&text, start, phrase)) {
                found.push((*number, phrase));
            }
        }
    }
    found
}

/// Returns whether the phrase is not a part of longer words or of an identifier.
fn is_whole(text: &str, start: usize, phrase: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    !text[..start].ends_with(is_part) && !text[start + phrase.len()..].starts_with(is_part)
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn vague_constants_are_found() {
        for prefix in VAGUE_PREFIXES {
            let text = format!(
                "// const {prefix}: u8\nconst {prefix}: u8 = 1;\n    pub(crate) static {prefix}_A: u8 = 1;\nconst A_{prefix}: u8 = 1;\n"
            );
            let found = finding_locations(constants_state_their_unit_or_limit, &[("a.rs", &text)]);
            assert_eq!(found, ["a.rs:2", "a.rs:3"]);
        }
    }

    #[test]
    fn phrases_are_found_in_prose() {
        for phrase in PHRASES {
            let text = format!(
                "// A {phrase}.\nlet a = \"{phrase}\";\nlet {name} = 1; // X_{phrase}\n",
                name = phrase.replace(' ', "_")
            );
            let document =
                format!("{phrase}\n\nA{phrase}\n{}\n", phrase.replacen(' ', "\n", 1).to_uppercase());
            let files = [
                ("crates/a/src/a.rs", &*text),
                ("crates/a/tests/a.rs", &*text),
                ("docs/guide/a.md", &*document),
                (STYLE_GUIDE, &*document),
                ("README.md", &*document),
            ];
            let found = finding_locations(|files| plain_words(files, &[]), &files);
            let expected =
                ["crates/a/src/a.rs:1", "crates/a/src/a.rs:2", "docs/guide/a.md:1", "docs/guide/a.md:4"];
            assert_eq!(found[..4], expected, "{phrase}");
            assert_eq!(found[4..], ["README.md:1", "README.md:4"], "{phrase}");
        }
    }

    #[test]
    fn a_phrase_is_found_across_lines_of_a_comment() {
        let (first, second) = PHRASES[0].split_at(PHRASES[0].rfind(' ').unwrap());
        let text = format!("/// It is 3 {first}\n///{second}.\nfn a() {{}}\n");
        let found = finding_locations(|files| plain_words(files, &[]), &[("crates/a/src/a.rs", &text)]);
        assert_eq!(found, ["crates/a/src/a.rs:1"]);
    }
}
