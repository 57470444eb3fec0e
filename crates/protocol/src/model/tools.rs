//! Tools that a server offers.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::results::results;
use super::{CacheScope, Content, Icon, Meta, TaskMetadata};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// Hints on what a tool does; not to be trusted unless the server is.
    #[derive(Default)]
    pub struct ToolAnnotations {
        /// The name for people, in an older place.
        title: Option<String> = "title",
        /// It changes nothing.
        read_only: Option<bool> = "readOnlyHint",
        /// It may destroy something.
        destructive: Option<bool> = "destructiveHint",
        /// Calling it twice is as good as once.
        idempotent: Option<bool> = "idempotentHint",
        /// It reaches beyond a closed world.
        open_world: Option<bool> = "openWorldHint",
    }

    /// How a tool may be run.
    #[derive(Default)]
    pub struct ToolExecution {
        /// As a task, or not.
        task_support: Option<TaskSupport> = "taskSupport",
    }

    /// Which page of a list.
    #[derive(Default)]
    pub struct PageParams {
        /// Where it begins; the first one when absent.
        cursor: Option<String> = "cursor",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// Which tool, with what.
    pub struct CallToolParams {
        /// Its name.
        name: String = "name",
        /// Its arguments.
        arguments: Option<Map<String, Value>> = "arguments",
        /// Answers to questions that an earlier result asked.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// What that result wanted back.
        request_state: Option<String> = "requestState" since Stateless,
        /// The wish to run it as a task.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

/// A tool that can be called.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub struct Tool {
    /// The name for programs.
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// What it does, for the model.
    pub description: Option<String>,
    /// What it takes: a JSON Schema of type `object`.
    pub input_schema: Value,
    /// What its structured result looks like.
    pub output_schema: Option<OutputSchema>,
    /// Hints on what it does.
    pub annotations: Option<ToolAnnotations>,
    /// How it may be run.
    pub execution: Option<ToolExecution>,
    /// Pictures.
    pub icons: Option<Vec<Icon>>,
    /// Metadata.
    #[serde(rename = "_meta")]
    pub meta: Option<Meta>,
}

/// Written out and not declared, for the title: where a revision has none, its annotations carry it.
impl Encode for Tool {
    fn encode(&self, to: &mut Encoder<'_>) {
        let mut annotations = self.annotations.clone();
        if !to.revision.has(Feature::Titles) && self.title.is_some() {
            let annotations = annotations.get_or_insert_default();
            annotations.title = annotations.title.take().or_else(|| self.title.clone());
        }
        to.object(|fields| {
            fields.field("name", &self.name);
            fields.since(Feature::Titles, "title", &self.title);
            fields.field("description", &self.description);
            fields.field("inputSchema", &self.input_schema);
            fields.since(Feature::StructuredContent, "outputSchema", &self.output_schema);
            fields.since(Feature::ToolAnnotations, "annotations", &annotations);
            fields.since(Feature::CoreTasks, "execution", &self.execution);
            fields.since(Feature::Icons, "icons", &self.icons);
            fields.since(Feature::ItemMeta, "_meta", &self.meta);
        });
    }
}

words! {
    /// Whether a tool may be run as a task.
    pub enum TaskSupport {
        /// Never.
        Forbidden = "forbidden",
        /// If the client wishes.
        Optional = "optional",
        /// Always.
        Required = "required",
    }
}

results! {
    /// What a tool gave.
    pub struct CallToolResult {
        /// For the model.
        content: Vec<Content> = "content",
        /// For programs.
        structured_content: Option<StructuredContent> = "structuredContent" since StructuredContent,
        /// Whether the call failed; the content then says why.
        is_error: Option<bool> = "isError",
    }

    /// One page of tools.
    pub struct ListToolsResult {
        /// The tools.
        tools: Vec<Tool> = "tools",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

/// The schema of a structured result. Revisions that know only objects get a schema that is not of type
/// `object` inside one, as its member `result`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct OutputSchema(pub Value);

impl OutputSchema {
    /// Whether every revision can carry it as it is.
    pub fn is_object(&self) -> bool {
        self.0.get("type").is_some_and(|kind| kind == "object")
    }
}

impl Encode for OutputSchema {
    fn encode(&self, to: &mut Encoder<'_>) {
        if self.is_object() || to.revision.has(Feature::AnyStructuredContent) {
            return self.0.encode(to);
        }
        let mut inner = self.0.clone();
        let mut outer = json!({"type": "object", "properties": {}, "required": ["result"]});
        if let Some(dialect) = inner.as_object_mut().and_then(|schema| schema.shift_remove("$schema")) {
            outer["$schema"] = dialect;
        }
        if inner.get("$id").is_none() {
            move_references(&mut inner);
        }
        outer["properties"]["result"] = inner;
        outer.encode(to);
    }
}

/// References to the root of a schema, or to a path from it, follow the schema into its wrapping.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(target) if key == "$ref" && (target == "#" || target.starts_with("#/")) => {
                        target.insert_str(1, "/properties/result");
                    }
                    value => move_references(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        _ => {}
    }
}

/// A structured result as JSON text. Revisions that know only objects get other values inside one, as its
/// member `result`.
#[derive(Clone, Deserialize)]
#[serde(from = "Box<RawValue>")]
pub struct StructuredContent {
    /// The JSON text.
    pub json: Box<RawValue>,
    /// Whether the tool's output schema is of type `object`; then nothing needs to be wrapped.
    pub object_schema: bool,
}

impl From<Box<RawValue>> for StructuredContent {
    fn from(json: Box<RawValue>) -> Self {
        let object_schema = json.get().starts_with('{');
        Self { json, object_schema }
    }
}

impl Encode for StructuredContent {
    fn encode(&self, to: &mut Encoder<'_>) {
        if self.object_schema || to.revision.has(Feature::AnyStructuredContent) {
            return self.json.encode(to);
        }
        to.object(|fields| fields.field("result", &self.json));
    }
}

impl fmt::Debug for StructuredContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json.get())
    }
}

impl PartialEq for StructuredContent {
    fn eq(&self, other: &Self) -> bool {
        self.json.get() == other.json.get()
    }
}
