//! Tools that a server offers: definitions, calls and results.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::results::results;
use super::{CacheScope, Content, Icon, Meta, TaskMetadata};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// Hints about the behaviour of a tool. Do not rely on them unless the server is trusted.
    #[derive(Default)]
    pub struct ToolAnnotations {
        /// Display name, as in older revisions.
        title: Option<String> = "title",
        /// The tool does not modify its environment.
        read_only: Option<bool> = "readOnlyHint",
        /// The tool may perform destructive updates.
        destructive: Option<bool> = "destructiveHint",
        /// Repeated calls with the same arguments have no additional effect.
        idempotent: Option<bool> = "idempotentHint",
        /// The tool interacts with external entities.
        open_world: Option<bool> = "openWorldHint",
    }

    /// How a tool can be executed: whether as a task.
    #[derive(Default)]
    pub struct ToolExecution {
        /// Whether the tool can, must or must not run as a task.
        task_support: Option<TaskSupport> = "taskSupport",
    }

    /// Parameters of list requests: the cursor of the page.
    #[derive(Default)]
    pub struct PageParams {
        /// Cursor of the page. Default: the first page.
        cursor: Option<String> = "cursor",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Parameters of `tools/call`.
    pub struct CallToolParams {
        /// Name of the tool.
        name: String = "name",
        /// Arguments of the tool.
        arguments: Option<Map<String, Value>> = "arguments",
        /// Responses to the input requests of an earlier `input_required` result.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// Request state of the earlier `input_required` result, sent back unchanged.
        request_state: Option<String> = "requestState" since Stateless,
        /// Requests that the server runs the call as a task.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

/// Tool definition, as a server lists it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub struct Tool {
    /// Programmatic name.
    pub name: String,
    /// Display name.
    pub title: Option<String>,
    /// Description for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments, of type `object`.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    pub output_schema: Option<OutputSchema>,
    /// Hints about the behaviour of the tool.
    pub annotations: Option<ToolAnnotations>,
    /// Execution properties of the tool, such as its support for tasks.
    pub execution: Option<ToolExecution>,
    /// Icons to display.
    pub icons: Option<Vec<Icon>>,
    /// Metadata of the tool (`_meta`).
    #[serde(rename = "_meta")]
    pub meta: Option<Meta>,
}

/// Implemented by hand because of the title: in revisions without `title` it is encoded in the annotations.
impl Encode for Tool {
    fn encode(&self, to: &mut Encoder<'_>) {
        let mut annotations = self.annotations.clone();
        if !to.revision.has(Feature::Titles) && self.title.is_some() {
            let annotations = annotations.get_or_insert_default();
            annotations.title = annotations.title.take().or_else(|| self.title.clone());
        }
        to.object(|fields| {
            fields.field("name", &self.name);
            fields.field_since(Feature::Titles, "title", &self.title);
            fields.field("description", &self.description);
            fields.field("inputSchema", &self.input_schema);
            fields.field_since(Feature::StructuredContent, "outputSchema", &self.output_schema);
            fields.field_since(Feature::ToolAnnotations, "annotations", &annotations);
            fields.field_since(Feature::CoreTasks, "execution", &self.execution);
            fields.field_since(Feature::Icons, "icons", &self.icons);
            fields.field_since(Feature::ItemMeta, "_meta", &self.meta);
        });
    }
}

words! {
    /// Whether a tool can run as a task.
    pub enum TaskSupport {
        /// The tool cannot run as a task.
        Forbidden = "forbidden",
        /// The tool runs as a task if the client requests it.
        Optional = "optional",
        /// The tool always runs as a task.
        Required = "required",
    }
}

results! {
    /// Result of a tool call.
    pub struct CallToolResult {
        /// Content for the model.
        content: Vec<Content> = "content",
        /// Structured result.
        structured_content: Option<StructuredContent> = "structuredContent" since StructuredContent,
        /// Whether the tool call failed. The content then describes the error.
        is_error: Option<bool> = "isError",
    }

    /// Result of `tools/list`: one page of tools.
    pub struct ListToolsResult {
        /// Tools of the page.
        tools: Vec<Tool> = "tools",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

/// JSON Schema of the structured result of a tool. In revisions that support only objects, a schema that is not of type
/// `object` is wrapped in an object schema as its property `result`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct OutputSchema(pub Value);

impl OutputSchema {
    /// Reports whether the schema is of type `object` and can be encoded unchanged in every revision.
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
            rebase_references(&mut inner);
        }
        outer["properties"]["result"] = inner;
        outer.encode(to);
    }
}

/// Adjusts references to the root of a schema, or to a path from it, after the schema has been wrapped.
fn rebase_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(target) if key == "$ref" && (target == "#" || target.starts_with("#/")) => {
                        target.insert_str(1, "/properties/result");
                    }
                    value => rebase_references(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rebase_references),
        _ => {}
    }
}

/// Structured result of a tool, as JSON text. In revisions that support only objects, other values are wrapped in an
/// object as its member `result`.
#[derive(Clone, Deserialize)]
#[serde(from = "Box<RawValue>")]
pub struct StructuredContent {
    /// JSON text of the structured content.
    pub json: Box<RawValue>,
    /// Whether the output schema of the tool is of type `object`. The value is then never wrapped.
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
