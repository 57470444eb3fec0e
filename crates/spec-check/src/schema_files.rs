//! Official schemas and examples: read once from a directory beside the checkout.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use crate::document::Document;

/// Example message of the MCP specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Definition that the example belongs to.
    pub definition: String,
    /// Name of the file of the example.
    pub name: String,
    /// JSON text of the example.
    pub text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/spec")
}

pub(crate) fn documents() -> Option<&'static BTreeMap<String, Document>> {
    static DOCUMENTS: OnceLock<Option<BTreeMap<String, Document>>> = OnceLock::new();
    let documents = DOCUMENTS.get_or_init(|| {
        if !root().is_dir() {
            // Not `eprintln!`: the test harness would capture it.
            let note = b"skipped: schema checks (no ../shared/spec beside the checkout)\n";
            io::stderr().write_all(note).ok();
            return None;
        }
        Some(read(&root()).expect("each revision in shared/spec has a readable schema.json"))
    });
    documents.as_ref()
}

fn read(root: &Path) -> io::Result<BTreeMap<String, Document>> {
    let mut documents = BTreeMap::new();
    for folder in children(root)? {
        let path = folder.join("schema.json");
        if path.is_file() {
            documents.insert(name(&folder), Document::new(serde_json::from_slice(&fs::read(path)?)?));
        }
    }
    Ok(documents)
}

pub(crate) fn examples(revision: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    for folder in children(&root().join(revision).join("examples")).unwrap_or_default() {
        for file in children(&folder).unwrap_or_default() {
            let text = fs::read_to_string(&file).expect("examples are readable text");
            examples.push(Example { definition: name(&folder), name: name(&file), text });
        }
    }
    examples
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
