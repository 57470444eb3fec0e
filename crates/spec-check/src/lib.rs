//! Checks of messages against the official JSON Schemas of the Model Context Protocol, for tests only.
//!
//! The schemas are not part of this repository: they are read from `shared/spec/<revision>/schema.json` beside the
//! checkout. [`Schemas::find`] returns `None` if they are missing, so that tests can pass without them. This crate
//! knows neither the types of the workspace nor revision dates. A revision is the name of a directory.

mod conversation;
mod document;
mod message;
mod report;
mod schema_files;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

pub use self::conversation::Conversation;
use self::document::{Document, Members};
pub use schema_files::Example;
use serde_json::Value;

/// Official JSON Schemas of all revisions, against which tests check messages; loaded once per process. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Schemas {
    documents: &'static BTreeMap<String, Document>,
}

impl Schemas {
    /// Loads the MCP specification schemas, which are beside the checkout. If they are missing, a note is written to
    /// standard error once.
    pub fn find() -> Option<Schemas> {
        schema_files::documents().map(|documents| Schemas { documents })
    }

    /// Returns the protocol revisions that have a schema, oldest first.
    pub fn revisions(&self) -> impl Iterator<Item = &'static str> {
        self.documents.keys().map(String::as_str)
    }

    /// Returns the official example messages of a revision. Empty if there are none.
    pub fn examples(&self, revision: &str) -> Vec<Example> {
        schema_files::examples(revision)
    }

    /// Reports whether the specification schema of a revision contains a definition. As in all methods, `definition`
    /// may be a path, such as `CallToolRequest/properties/params`.
    pub fn has_definition(&self, revision: &str, definition: &str) -> bool {
        self.document(revision).is_ok_and(|document| document.find(definition).is_some())
    }

    /// Returns the members that a definition of the specification declares, including those of the definition it refers
    /// to.
    pub fn members(&self, revision: &str, definition: &str) -> BTreeSet<String> {
        self.document(revision).map(|document| document.members(definition)).unwrap_or_default()
    }

    /// Returns the methods of all requests and notifications of a revision, including those carried in results.
    pub fn methods(&self, revision: &str) -> BTreeSet<String> {
        self.document(revision).map(Document::methods).unwrap_or_default()
    }

    /// Checks a value against a definition of the MCP schema. The error contains up to five locations and reasons.
    pub fn check(&self, revision: &str, definition: &str, value: &Value) -> Result<(), String> {
        self.document(revision)?.check(definition, value, Members::Any)
    }

    /// Checks a value like [`check`](Self::check), and rejects undeclared members. The schemas allow them nearly
    /// everywhere, but here they indicate that a member was written that the revision does not have.
    pub fn check_exactly(&self, revision: &str, definition: &str, value: &Value) -> Result<(), String> {
        self.document(revision)?.check(definition, value, Members::Declared)
    }

    fn document(self, revision: &str) -> Result<&'static Document, String> {
        self.documents.get(revision).ok_or_else(|| format!("there is no schema for revision \"{revision}\""))
    }
}
