//! Candidates for the sample that are declared in the product: names of types and files, and docs of items.

use crate::rust_source::{Item, ItemKind, RustSource};
use crate::tidy::SourceFile;

/// Source file of a crate, without tests.
pub(super) struct ProductFile<'a> {
    pub(super) path: &'a str,
    pub(super) source: RustSource<'a>,
}

/// Reads the Rust files in the `src` folders of the crates.
pub(super) fn read(files: &[SourceFile]) -> Vec<ProductFile<'_>> {
    let product = files.iter().filter(|file| file.is_rust() && is_product(&file.path));
    product.map(|file| ProductFile { path: &file.path, source: RustSource::read(&file.text) }).collect()
}

fn is_product(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    let ["crates", _, "src", inner @ ..] = &parts[..] else { return false };
    let is_test = |part: &&str| matches!(*part, "tests" | "tests.rs") || part.ends_with("_tests.rs");
    !inner.iter().any(is_test)
}

/// Returns types and files with the first sentence of their docs.
pub(super) fn names(files: &[ProductFile<'_>]) -> Vec<String> {
    let mut names = Vec::new();
    for file in files {
        let docs = file.source.comments.iter().filter(|comment| comment.text.starts_with("//!"));
        let docs: Vec<_> = docs.map(|comment| comment.text[3..].trim().to_owned()).collect();
        names.push(format!("file `{}`: {}", file.path, first_sentence(&docs)));
        for item in file.items().filter(|item| item.kind == ItemKind::Type && !item.doc.is_empty()) {
            let doc = first_sentence(&item.doc);
            names.push(format!("`{}`: {doc} ({}:{})", item.signature, file.path, item.line));
        }
    }
    names
}

/// Returns functions, constants, fields and variants with the first sentence of their docs.
pub(super) fn docs(files: &[ProductFile<'_>]) -> Vec<String> {
    let mut docs = Vec::new();
    for file in files {
        let items = file.items().filter(|item| item.kind != ItemKind::Type && !item.is_command_line);
        for item in items.filter(|item| !item.doc.is_empty()) {
            let doc = first_sentence(&item.doc);
            docs.push(format!("{doc} `{}` ({}:{})", item.signature, file.path, item.line));
        }
    }
    docs
}

impl ProductFile<'_> {
    /// Returns the items that are not for tests only.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        self.source.items().into_iter().filter(|item| !self.source.is_test_line(item.line))
    }
}

/// Returns the first sentence of a doc comment. It ends at a full stop, or at the end of the paragraph.
pub(super) fn first_sentence(doc: &[String]) -> String {
    let paragraph: Vec<_> = doc.iter().map(String::as_str).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let starts_sentence = |rest: &str| rest.starts_with(|char: char| char.is_uppercase() || char == '`');
    let end = text.match_indices(". ").find(|(at, stop)| starts_sentence(&text[at + stop.len()..]));
    end.map_or(text.as_str(), |(at, _)| &text[..=at]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> [SourceFile; 4] {
        let text = "//! A module that\n//! holds a. More.\n\n/// A type, e.g. this. Yes.\n///\n/// More.\npub struct A {\n    \
                    /// A field\n    b: u8,\n}\nstruct C;\n#[cfg(test)]\nmod tests {\n    /// D.\n    fn e() {}\n}\n";
        ["crates/a/src/b.rs", "crates/a/src/b/tests.rs", "crates/a/tests/b.rs", "xtask/src/b.rs"]
            .map(|path| SourceFile { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn names_are_types_and_files_of_the_product() {
        let files = files();
        let expected = [
            "file `crates/a/src/b.rs`: A module that holds a.",
            "`pub struct A`: A type, e.g. this. (crates/a/src/b.rs:7)",
        ];
        assert_eq!(names(&read(&files)), expected);
    }

    #[test]
    fn docs_are_those_of_other_items() {
        let files = files();
        assert_eq!(docs(&read(&files)), ["A field `A { b: u8 }` (crates/a/src/b.rs:9)"]);
    }
}
