//! Checks messages against the official JSON schemas of the Model Context Protocol. For tests only.
//!
//! The schemas are no part of this repository: they are looked for in `shared/spec/<revision>/schema.json` beside
//! the checkout, and [`Schemas::find`] gives `None` where they are missing, so that tests can pass without them.
//! What this crate must not know: our own types and any revision's date. A revision is the name of a folder.

mod document;
mod folder;
mod message;
mod report;
mod tasks;
mod transcript;

use std::collections::{BTreeMap, BTreeSet};

use document::{Document, Members};
pub use folder::Example;
use serde_json::Value;
pub use transcript::Transcript;

/// The schemas of all revisions, loaded once per process. Copies are free.
#[derive(Debug, Clone, Copy)]
pub struct Schemas {
    documents: &'static BTreeMap<String, Document>,
}

impl Schemas {
    /// The schemas beside the checkout. Says once, on standard error, when they are not there.
    pub fn find() -> Option<Schemas> {
        folder::documents().map(|documents| Schemas { documents })
    }

    /// The revisions, oldest first.
    pub fn revisions(&self) -> impl Iterator<Item = &'static str> {
        self.documents.keys().map(String::as_str)
    }

    /// The official examples of a revision; empty where there are none.
    pub fn examples(&self, revision: &str) -> Vec<Example> {
        folder::examples(revision)
    }

    /// Whether the revision has this definition. Like everywhere here, it may be a path into one, such as
    /// `CallToolRequest/properties/params`.
    pub fn has(&self, revision: &str, definition: &str) -> bool {
        self.document(revision).is_ok_and(|document| document.find(definition).is_some())
    }

    /// The members that a definition names, those of the definition it refers to included.
    pub fn members(&self, revision: &str, definition: &str) -> BTreeSet<String> {
        self.document(revision).map(|document| document.members(definition)).unwrap_or_default()
    }

    /// The methods of all requests and notifications of a revision, those that travel inside results included.
    pub fn methods(&self, revision: &str) -> BTreeSet<String> {
        self.document(revision).map(Document::methods).unwrap_or_default()
    }

    /// Checks a value against a definition. The error names up to five places and what is wrong there.
    pub fn check(&self, revision: &str, definition: &str, value: &Value) -> Result<(), String> {
        self.document(revision)?.check(definition, value, Members::Any)
    }

    /// As [`check`](Self::check), and members that the definition does not name are faults too. The schemas allow
    /// them nearly everywhere; to us they mean that something was written that the revision does not have.
    pub fn check_exactly(&self, revision: &str, definition: &str, value: &Value) -> Result<(), String> {
        self.document(revision)?.check(definition, value, Members::Named)
    }

    fn document(self, revision: &str) -> Result<&'static Document, String> {
        self.documents.get(revision).ok_or_else(|| format!("there is no schema of a revision \"{revision}\""))
    }
}
