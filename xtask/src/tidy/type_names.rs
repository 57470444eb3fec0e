//! Rules: a type name is a noun, and stands for one type per crate.

use std::collections::BTreeMap;

use super::exceptions::{Exception, Exceptions};
use super::{Finding, SourceFile, rust};
use crate::rust_source::{Item, ItemKind, RustSource};

const PATH: &str = "xtask/src/tidy/type_names.rs";

/// Participles and pronouns.
const VAGUE_NAMES: [&str; 15] = [
    "Told", "Came", "Kept", "Held", "Begun", "Known", "Seen", "Heard", "Asked", "Wanted", "Which", "Whose",
    "Who", "Is", "What",
];

/// Vague names by file.
const VAGUE_EXCEPTIONS: &[Exception] = &[];

/// Names that every module may use.
const COMMON_NAMES: [&str; 3] = ["Result", "Error", "Inner"];

/// Folders that implement the same types for two databases.
const DATABASES: [&str; 2] = ["crates/hub-store/src/postgres/", "crates/hub-store/src/sqlite/"];

/// Duplicate names by crate.
const DUPLICATE_EXCEPTIONS: &[Exception] = &[
    // Subcommands of clap, one enum per command.
    ("hub", "Command"),
    // `egress::Body` is sent to a server, `server::http::Body` to a client.
    ("sdk", "Body"),
    // The same type; only the one in `egress` is in the API.
    ("sdk", "BoxFuture"),
    // `auth::Request` is an HTTP request to authenticate, `server::Request` an MCP request in a layer.
    ("sdk", "Request"),
];

pub(super) fn type_names_are_nouns(files: &[SourceFile]) -> Vec<Finding> {
    nouns(files, VAGUE_EXCEPTIONS)
}

pub(super) fn type_names_are_unique_in_a_crate(files: &[SourceFile]) -> Vec<Finding> {
    unique(files, DUPLICATE_EXCEPTIONS)
}

fn nouns(files: &[SourceFile], exceptions: &[Exception]) -> Vec<Finding> {
    let mut exceptions = Exceptions::new(exceptions, PATH);
    let mut findings = Vec::new();
    for file in rust(files) {
        for item in types(&RustSource::read(&file.text)) {
            if VAGUE_NAMES.contains(&&*item.name) && !exceptions.allow(&file.path, &item.name) {
                findings.push(file.finding(item.line, format!("`{}`: name the type with a noun", item.name)));
            }
        }
    }
    findings.extend(exceptions.unused());
    findings
}

fn unique(files: &[SourceFile], exceptions: &[Exception]) -> Vec<Finding> {
    let mut exceptions = Exceptions::new(exceptions, PATH);
    let mut findings = Vec::new();
    let mut first_places = BTreeMap::new();
    for file in rust(files).filter(|file| !is_stub(&file.path)) {
        let Some((folder, _)) = file.path.split_once("/src/") else { continue };
        let Some(name) = folder.strip_prefix("crates/") else { continue };
        // Each database folder counts as a crate of its own.
        let scope = DATABASES.into_iter().find(|folder| file.path.starts_with(folder)).unwrap_or(name);
        let source = RustSource::read(&file.text);
        let public = types(&source).filter(|item| item.is_public && !source.is_test_line(item.line));
        for item in public.filter(|item| !COMMON_NAMES.contains(&&*item.name)) {
            let place = format!("{}:{}", file.path, item.line);
            let first = first_places.entry((scope, item.name.clone())).or_insert_with(|| place.clone());
            if *first != place && !exceptions.allow(scope, &item.name) {
                let advice = format!("`{}` is also at {first}: name them by what differs", item.name);
                findings.push(file.finding(item.line, advice));
            }
        }
    }
    findings.extend(exceptions.unused());
    findings
}

/// Returns whether the file replaces another one if a feature is disabled.
fn is_stub(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("no_"))
}

fn types(source: &RustSource<'_>) -> impl Iterator<Item = Item> {
    source.items().into_iter().filter(|item| item.kind == ItemKind::Type)
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn vague_names_are_found() {
        for name in VAGUE_NAMES {
            let text = format!(
                "// struct {name}\npub(crate) struct {name};\nenum {name}Call {{}}\ntype {name}<'a> = u8;\n"
            );
            let found = finding_locations(|files| nouns(files, &[]), &[("crates/a/tests/a.rs", &text)]);
            assert_eq!(found, ["crates/a/tests/a.rs:2", "crates/a/tests/a.rs:4"]);
        }
    }

    #[test]
    fn duplicates_in_a_crate_are_found() {
        let text = "pub struct Body;\npub type Result = u8;\nstruct Private;\n#[cfg(test)]\nmod tests {\n    pub struct Test;\n}\n";
        let files = [
            ("crates/a/src/a.rs", text),
            ("crates/a/src/b.rs", text),
            ("crates/a/src/no_b.rs", text),
            ("crates/a/tests/a.rs", text),
            ("crates/b/src/a.rs", text),
            ("crates/hub-store/src/postgres/a.rs", text),
            ("crates/hub-store/src/sqlite/a.rs", text),
            ("crates/hub-store/src/sqlite/b.rs", text),
        ];
        let found = finding_locations(|files| unique(files, &[]), &files);
        assert_eq!(found, ["crates/a/src/b.rs:1", "crates/hub-store/src/sqlite/b.rs:1"]);
        let found = finding_locations(|files| unique(files, &[("a", "Body"), ("a", "Gone")]), &files[..2]);
        assert_eq!(found, [format!("{PATH}:1")]);
    }
}
