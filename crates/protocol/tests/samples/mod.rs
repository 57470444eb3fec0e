//! Sample values, one row per definition of the specification: its model type, its revisions, a full value with the
//! members of all revisions, and a minimal value that every revision accepts.

mod params;
mod results;
mod tasks;

use std::ops::RangeInclusive;

use linchpin_protocol::Revision::{self, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
use linchpin_protocol::encode::{Encode, to_value};
use linchpin_protocol::model::{
    Annotations, ClientCapabilities, CompletionReference, Content, ElicitSchema, Icon, Implementation,
    ModelHint, ModelPreferences, PrimitiveSchema, Prompt, PromptArgument, PromptMessage, Resource,
    ResourceContents, ResourceTemplate, Root, SamplingMessage, ServerCapabilities, SubscriptionFilter, Tool,
    ToolAnnotations, ToolChoice, ToolExecution,
};
use linchpin_protocol::wire::decode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) struct Row {
    /// Definition. If revisions name it differently, all names.
    pub(crate) definition: &'static str,
    pub(crate) revisions: RangeInclusive<Revision>,
    full: Value,
    minimal: Value,
    encode: fn(&Value, Revision) -> Value,
}

impl Row {
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.definition.split(" or ")
    }

    /// Returns the full value as JSON of a revision.
    pub(crate) fn full(&self, revision: Revision) -> Value {
        (self.encode)(&self.full, revision)
    }

    /// Returns the minimal value.
    pub(crate) fn minimal(&self, revision: Revision) -> Value {
        (self.encode)(&self.minimal, revision)
    }
}

fn row<T: DeserializeOwned + Encode>(
    definition: &'static str,
    revisions: RangeInclusive<Revision>,
    full: Value,
    least: Value,
) -> Row {
    Row { definition, revisions, full, minimal: least, encode: reencode::<T> }
}

/// Decodes the model type and encodes it for a revision.
pub(crate) fn reencode<T: DeserializeOwned + Encode>(json: &Value, revision: Revision) -> Value {
    match decode::<T>(&json.to_string()) {
        Ok(value) => to_value(&value, revision),
        Err(invalid) => panic!("{} at {:?} of {json}", invalid.reason, invalid.path),
    }
}

/// Creates a row for a form field, encoded as part of a form.
fn field_row(
    definition: &'static str,
    revisions: RangeInclusive<Revision>,
    full: Value,
    least: Value,
) -> Row {
    let encode = |field: &Value, revision| {
        let field = reencode::<PrimitiveSchema>(field, Revision::LATEST);
        let form = json!({"type": "object", "properties": {"field": field}});
        reencode::<ElicitSchema>(&form, revision)["properties"]["field"].take()
    };
    Row { definition, revisions, full, minimal: least, encode }
}

const ALL: RangeInclusive<Revision> = V2024_11_05..=V2026_07_28;
const SESSION: RangeInclusive<Revision> = V2024_11_05..=V2025_11_25;
const SECOND: RangeInclusive<Revision> = V2025_03_26..=V2026_07_28;
const THIRD: RangeInclusive<Revision> = V2025_06_18..=V2026_07_28;
const FOURTH: RangeInclusive<Revision> = V2025_11_25..=V2026_07_28;
const FOURTH_ONLY: RangeInclusive<Revision> = V2025_11_25..=V2025_11_25;
const STATELESS: RangeInclusive<Revision> = V2026_07_28..=V2026_07_28;

pub(crate) fn rows() -> Vec<Row> {
    [
        basics(),
        content(),
        features(),
        params::forms(),
        params::client_params(),
        params::server_params(),
        results::rows(),
        tasks::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn meta() -> Value {
    json!({"example.com/key": {"a": 1}})
}

/// Returns the metadata that every request of the stateless era must contain.
fn request_meta() -> Value {
    json!({
        "progressToken": "p",
        "io.modelcontextprotocol/protocolVersion": V2026_07_28.as_str(),
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn icons() -> Value {
    json!([{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}])
}

fn annotations() -> Value {
    json!({"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"})
}

fn text() -> Value {
    json!({"type": "text", "text": "t", "annotations": annotations(), "_meta": meta()})
}

fn tool() -> Value {
    json!({
        "name": "t", "title": "T", "description": "d",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "outputSchema": {"type": "array", "items": {"type": "string"}},
        "annotations": tool_annotations(), "execution": {"taskSupport": "optional"},
        "icons": icons(), "_meta": meta(),
    })
}

fn tool_annotations() -> Value {
    json!({
        "title": "T", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false,
    })
}

fn resource() -> Value {
    json!({
        "uri": "file:///r", "name": "r", "title": "R", "description": "d", "mimeType": "text/plain",
        "annotations": annotations(), "size": 3, "icons": icons(), "_meta": meta(),
    })
}

fn prompt() -> Value {
    json!({
        "name": "p", "title": "P", "description": "d", "icons": icons(), "_meta": meta(),
        "arguments": [{"name": "a", "title": "A", "description": "d", "required": true}],
    })
}

fn client_capabilities() -> Value {
    json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {"context": {}, "tools": {}},
        "roots": {"listChanged": true}, "extensions": {"example.com/e": {}},
        "tasks": {"list": {}, "cancel": {}, "requests": {
            "sampling": {"createMessage": {}}, "elicitation": {"create": {}},
        }},
        "experimental": {"x": {"a": 1}},
    })
}

fn server_capabilities() -> Value {
    json!({
        "tools": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true}, "completions": {}, "logging": {},
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
        "extensions": {"example.com/e": {}}, "experimental": {"x": {"a": 1}},
    })
}

fn implementation() -> Value {
    json!({
        "name": "n", "title": "N", "version": "1", "description": "d", "websiteUrl": "https://example.com",
        "icons": icons(),
    })
}

fn basics() -> Vec<Row> {
    let least = json!({"name": "n", "version": "1"});
    vec![
        row::<Implementation>("Implementation", ALL, implementation(), least),
        row::<Icon>("Icon", FOURTH, icons()[0].clone(), json!({"src": "data:image/png;base64,AA=="})),
        row::<ClientCapabilities>("ClientCapabilities", ALL, client_capabilities(), json!({})),
        row::<ServerCapabilities>("ServerCapabilities", ALL, server_capabilities(), json!({})),
        row::<Annotations>("Annotations", SECOND, annotations(), json!({})),
        row::<Root>(
            "Root",
            ALL,
            json!({"uri": "file:///a", "name": "a", "_meta": meta()}),
            json!({"uri": "file:///a"}),
        ),
        row::<SubscriptionFilter>("SubscriptionFilter", STATELESS, filter(), json!({})),
    ]
}

fn content() -> Vec<Row> {
    let media = |kind: &str| json!({"type": kind, "data": "AA==", "mimeType": "a/b"});
    let marked = |block: Value| {
        let mut block = block;
        block["annotations"] = annotations();
        block["_meta"] = meta();
        block
    };
    let embedded = json!({"type": "resource", "resource": {"uri": "file:///r", "text": "t"}});
    let mut link = resource();
    link["type"] = "resource_link".into();
    let used = json!({"type": "tool_use", "id": "i", "name": "t", "input": {}});
    let mut used_with_meta = used.clone();
    used_with_meta["_meta"] = meta();
    let outcome = json!({
        "type": "tool_result", "toolUseId": "i", "content": [text()], "structuredContent": [1], "isError": false,
        "_meta": meta(),
    });
    let part = |key: &str| json!({"uri": "file:///r", "mimeType": "a/b", key: "AA==", "_meta": meta()});
    vec![
        row::<Content>("TextContent", ALL, text(), json!({"type": "text", "text": ""})),
        row::<Content>("ImageContent", ALL, marked(media("image")), media("image")),
        row::<Content>("AudioContent", SECOND, marked(media("audio")), media("audio")),
        row::<Content>("EmbeddedResource", ALL, marked(embedded.clone()), embedded),
        row::<Content>(
            "ResourceLink",
            THIRD,
            link,
            json!({"type": "resource_link", "uri": "a:b", "name": "n"}),
        ),
        row::<Content>("ToolUseContent", FOURTH, used_with_meta, used),
        row::<Content>(
            "ToolResultContent",
            FOURTH,
            outcome,
            json!({"type": "tool_result", "toolUseId": "i", "content": []}),
        ),
        row::<ResourceContents>("TextResourceContents", ALL, part("text"), json!({"uri": "a:b", "text": ""})),
        row::<ResourceContents>("BlobResourceContents", ALL, part("blob"), json!({"uri": "a:b", "blob": ""})),
    ]
}

fn features() -> Vec<Row> {
    let mut template = resource();
    template["uriTemplate"] = "file:///{path}".into();
    let message = json!({"role": "user", "content": text()});
    let preferences = json!({
        "hints": [{"name": "m"}], "costPriority": 0.1, "speedPriority": 0.2, "intelligencePriority": 1,
    });
    vec![
        row::<Tool>("Tool", ALL, tool(), json!({"name": "t", "inputSchema": {"type": "object"}})),
        row::<ToolAnnotations>("ToolAnnotations", SECOND, tool_annotations(), json!({})),
        row::<ToolExecution>("ToolExecution", FOURTH_ONLY, json!({"taskSupport": "required"}), json!({})),
        row::<ToolChoice>("ToolChoice", FOURTH, json!({"mode": "none"}), json!({})),
        row::<Resource>("Resource", ALL, resource(), json!({"uri": "a:b", "name": "n"})),
        row::<ResourceTemplate>(
            "ResourceTemplate",
            ALL,
            template,
            json!({"uriTemplate": "a:{b}", "name": "n"}),
        ),
        row::<Prompt>("Prompt", ALL, prompt(), json!({"name": "p"})),
        row::<PromptArgument>("PromptArgument", ALL, prompt()["arguments"][0].clone(), json!({"name": "a"})),
        row::<PromptMessage>("PromptMessage", ALL, message.clone(), message.clone()),
        row::<CompletionReference>(
            "PromptReference",
            ALL,
            json!({"type": "ref/prompt", "name": "p", "title": "P"}),
            json!({"type": "ref/prompt", "name": "p"}),
        ),
        row::<CompletionReference>(
            "ResourceTemplateReference or ResourceReference",
            ALL,
            json!({"type": "ref/resource", "uri": "a:{b}"}),
            json!({"type": "ref/resource", "uri": "a:{b}"}),
        ),
        row::<SamplingMessage>(
            "SamplingMessage",
            ALL,
            json!({"role": "user", "content": [text(), text()], "_meta": meta()}),
            message,
        ),
        row::<ModelPreferences>("ModelPreferences", ALL, preferences, json!({})),
        row::<ModelHint>("ModelHint", ALL, json!({"name": "m"}), json!({})),
    ]
}

fn filter() -> Value {
    json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": false,
        "resourceSubscriptions": ["file:///r"],
    })
}
