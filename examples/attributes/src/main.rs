//! Tools, resources and prompts as plain functions: doc comments become descriptions, parameters become arguments, and
//! shared state is injected by type.

use std::collections::BTreeMap;
use std::sync::Mutex;

use linchpin::{Context, Error, Json, Result, Server, State, prompt, resource, tool};
use schemars::JsonSchema;
use serde::Serialize;

/// All notes, by name.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<String, String>>);

#[derive(Serialize, JsonSchema)]
struct Saved {
    /// Number of notes
    count: usize,
}

impl Notes {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Saves a note under a name
#[tool(idempotent)]
async fn save(
    /// Name of the note
    name: String,
    /// Text of the note
    text: String,
    notes: State<Notes>,
    cx: Context,
) -> Result<Json<Saved>> {
    if text.is_empty() {
        return Err(Error::tool("the text must not be empty"));
    }
    cx.progress((1.0, 1.0, "saved"));
    let count = notes.with(|notes| {
        notes.insert(name, text);
        notes.len()
    });
    Ok(Json(Saved { count }))
}

/// A note
#[resource("notes://{name}", mime = "text/plain")]
async fn note(name: String, notes: State<Notes>) -> Result<String> {
    let found = notes.with(|notes| notes.get(&name).cloned());
    found.ok_or_else(|| Error::resource_not_found(format!("notes://{name}")))
}

/// Summarizes a note
#[prompt]
async fn summarize(name: String, style: Option<String>) -> String {
    format!("Summarize the note {name} in a {} style", style.as_deref().unwrap_or("short"))
}

#[tokio::main]
async fn main() -> Result {
    Server::new("notes", "1.0.0").state(Notes::default()).add(save).add(note).add(summarize).run().await
}
