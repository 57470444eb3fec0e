//! User-facing texts: help of the command line, error and other messages, log messages, and REST summaries.

use super::candidates::{ProductFile, first_sentence};
use crate::rust_source::ItemKind;

/// Code that only tests use.
const TEST_SUPPORT: [&str; 3] = ["crates/spec-check/", "crates/test-postgres/", "crates/sdk/src/testing/"];
const ROUTES_PATH: &str = "crates/hub-http/src/routes.rs";
const MIN_WORDS: usize = 3;
const MESSAGE: &str = "message";

const LOG_MACROS: [&str; 5] = ["trace!(", "debug!(", "info!(", "warn!(", "error!("];
/// Calls whose texts are for developers.
const INTERNAL_CALLS: [&str; 5] = ["assert!(", "assert_eq!(", "assert_ne!(", "panic!(", "unreachable!("];
/// Code directly before a text for developers. `b` is the prefix of byte strings.
const INTERNAL_PREFIXES: [&str; 4] = ["expect(", "reason =", "doc =", "b"];
const SQL_KEYWORDS: [&str; 16] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "WITH", "PRAGMA", "WHERE", "ROLLBACK",
    "BEGIN", "BEGIN;", "FROM", "NULL", "AND",
];

/// Returns the texts with their kind, the option or function that they belong to, file and line.
pub(super) fn texts(files: &[ProductFile<'_>]) -> Vec<String> {
    let mut texts = Vec::new();
    for file in files.iter().filter(|file| !TEST_SUPPORT.iter().any(|path| file.path.starts_with(path))) {
        let mut push = |kind: &str, text: &str, line: usize| {
            texts.push(format!("{kind}: {text} ({}:{line})", file.path));
        };
        let items: Vec<_> = file.items().collect();
        for item in items.iter().filter(|item| item.is_command_line && item.kind == ItemKind::Member) {
            let help = first_sentence(&item.doc);
            if is_prose(&help) {
                push(&format!("help of `{}`", item.name), &help, item.line);
            }
        }
        let functions: Vec<_> = items.iter().filter(|item| item.kind == ItemKind::Function).collect();
        let function_at = |line: usize| functions.iter().rfind(|function| function.line <= line);
        let literals = file.source.strings.iter().filter(|literal| !file.source.is_test_line(literal.line));
        for literal in literals {
            let text = literal.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let kind = kind(file.path, file.source.statement_before(literal));
            let Some(kind) = kind.filter(|_| is_prose(&text)) else { continue };
            match function_at(literal.line).filter(|_| kind == MESSAGE) {
                Some(function) => push(&format!("{kind} of `{}`", function.name), &text, literal.line),
                None => push(kind, &text, literal.line),
            }
        }
    }
    texts
}

/// Returns the kind of a text from the code before it; `None` if it is not user-facing.
fn kind(path: &str, statement: &str) -> Option<&'static str> {
    if path == ROUTES_PATH {
        return statement.ends_with("summary(").then_some("REST summary");
    }
    let is_internal = INTERNAL_CALLS.iter().any(|call| statement.contains(call))
        || INTERNAL_PREFIXES.iter().any(|prefix| statement.ends_with(prefix));
    let is_log = LOG_MACROS.iter().any(|name| statement.contains(name));
    (!is_internal).then_some(if is_log { "log" } else { MESSAGE })
}

/// Returns whether the text is a phrase: at least three words, and more words than code.
fn is_prose(text: &str) -> bool {
    let words: Vec<_> = text.split_whitespace().collect();
    let is_word = |word: &&&str| {
        let word = word.trim_end_matches(['.', ',', ';', ':', '?', '!', ')']).trim_start_matches('(');
        word.starts_with(char::is_alphabetic)
            && word.chars().all(|char| char.is_alphabetic() || matches!(char, '-' | '\''))
    };
    let plain = words.iter().filter(is_word).count();
    // A part that is appended to another text.
    let is_tail = text.starts_with([',', ';', ':', '.', ')']);
    let is_code = text.starts_with(['<', '{', '[', '|']) && !text.starts_with("{}") || text.contains("</");
    let is_sql = words.iter().any(|word| SQL_KEYWORDS.contains(word));
    let is_list = words.iter().rev().skip(1).all(|word| word.ends_with(','));
    // A command, or the purpose of a digest.
    let is_command = text.starts_with("linchpin ");
    plain >= MIN_WORDS && 2 * plain > words.len() && !(is_tail || is_code || is_sql || is_list || is_command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose_sample::candidates::read;
    use crate::tidy::SourceFile;

    fn found(path: &str, text: &str) -> Vec<String> {
        texts(&read(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]))
    }

    #[test]
    fn texts_have_kind_and_place() {
        let text = "#[derive(Args)]\nstruct A {\n    /// List all agents. More.\n    b: u8,\n    /// Two words\n    c: u8,\n}\n\
                    fn d() {\n    tracing::warn!(%error, \"failed to store \\\n        it\");\n    \
                    let e = f.expect(\"it is always there\");\n    \
                    let i = b\"made for a machine\";\n    Err(format!(\"`{g}`: must be a string\"))\n}\n\
                    #[cfg(test)]\nmod tests {\n    const H: &str = \"not for any user\";\n}\n";
        let expected = [
            "help of `b`: List all agents. (crates/hub/src/cli/a.rs:4)",
            "log: failed to store it (crates/hub/src/cli/a.rs:9)",
            "message of `d`: `{g}`: must be a string (crates/hub/src/cli/a.rs:13)",
        ];
        assert_eq!(found("crates/hub/src/cli/a.rs", text), expected);
        assert!(found("crates/spec-check/src/a.rs", text).is_empty());
    }

    #[test]
    fn summaries_are_the_texts_of_the_routes() {
        let text =
            "fn all() { vec![get(\"/a b c d\", x).summary(\"Get the status\"), other(\"An event stream\")] }";
        assert_eq!(found(ROUTES_PATH, text), [format!("REST summary: Get the status ({ROUTES_PATH}:1)")]);
    }

    #[test]
    fn code_is_not_prose() {
        assert!(is_prose("`command`: must be a string"));
        assert!(!is_prose("two words"));
        assert!(!is_prose(", or set another path"));
        assert!(!is_prose("default-src 'self'; script-src 'self'; base-uri 'none'"));
        assert!(!is_prose("SELECT id FROM calls"));
        assert!(!is_prose("name, parent, version, body"));
        assert!(!is_prose("linchpin tool id"));
        assert!(!is_prose("<p>this is a page</p>"));
        assert!(!is_prose("{\"a\": 1, one two three}"));
        assert!(!is_prose("a b c {} {} {} {}"));
    }
}
