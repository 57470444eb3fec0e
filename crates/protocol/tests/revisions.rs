//! JSON of every model type in every revision: valid against the official schema, without members that the revision
//! does not have.

mod samples;

use std::ops::RangeInclusive;

use linchpin_jsonrpc::{ErrorObject, write};
use linchpin_protocol::Revision::{self, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
use linchpin_protocol::encode::Encode;
use linchpin_protocol::model::{CallToolResult, Content, ElicitParams, SamplingMessage, Tool};
use linchpin_protocol::wire::error_object;
use linchpin_protocol::{Error, Feature, Method};
use samples::{Row, reencode, rows};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spec_check::Schemas;

#[test]
fn every_type_is_what_the_schema_of_each_revision_says() {
    let Some(schemas) = Schemas::find() else { return };
    let mut faults = Vec::new();
    for revision in Revision::ALL {
        for row in rows() {
            if let Err(fault) = check(schemas, &row, revision) {
                faults.push(format!("{revision} {}: {fault}", row.definition));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Checks that the full value has exactly the members of the schema, and that the minimal value is valid.
fn check(schemas: Schemas, row: &Row, revision: Revision) -> Result<(), String> {
    let name = revision.as_str();
    let definition = row.names().find(|definition| schemas.has_definition(name, definition));
    let Some(definition) = definition.filter(|_| row.revisions.contains(&revision)) else {
        let agreed = definition.is_some() == row.revisions.contains(&revision);
        return if agreed {
            Ok(())
        } else {
            Err("the table and the schema differ on where it exists".into())
        };
    };
    let full = row.full(revision);
    schemas.check_exactly(name, definition, &full).map_err(|fault| format!("full: {fault}\n{full}"))?;
    if let Some(missing) = schemas.members(name, definition).iter().find(|member| full.get(member).is_none())
    {
        return Err(format!("the full value has no \"{missing}\"\n{full}"));
    }
    let least = row.minimal(revision);
    schemas.check_exactly(name, definition, &least).map_err(|fault| format!("least: {fault}\n{least}"))
}

/// Methods that the latest revision has only with an extension, which its schema does not describe.
const EXTENSION_METHODS: [Method; 7] = [
    Method::GetTask,
    Method::UpdateTask,
    Method::CancelTask,
    Method::TaskUpdated,
    Method::ListSkills,
    Method::GetSkill,
    Method::ReadResourceDirectory,
];

#[test]
fn the_table_of_methods_is_that_of_the_schemas() {
    let Some(schemas) = Schemas::find() else { return };
    for revision in Revision::ALL {
        let official = schemas.methods(revision.as_str());
        for &method in Method::ALL {
            let name = method.name();
            let extends = revision == V2026_07_28 && EXTENSION_METHODS.contains(&method);
            assert!(!(extends && official.contains(name)), "{name} is in the core of {revision}");
            assert_eq!(official.contains(name) || extends, method.exists_in(revision), "{name} {revision}");
        }
        assert_eq!(official.iter().find(|method| Method::find(method).is_none()), None, "{revision}");
    }
}

/// Members that not every revision has, each with its revisions.
#[test]
fn members_appear_only_in_revisions_that_have_them() {
    type Since = (&'static str, &'static str, RangeInclusive<Revision>);
    const fn since(definition: &'static str, path: &'static str, first: Revision) -> Since {
        (definition, path, first..=V2026_07_28)
    }
    let members = [
        since("Tool", "/annotations", V2025_03_26),
        since("Tool", "/title", V2025_06_18),
        since("Tool", "/outputSchema", V2025_06_18),
        since("Tool", "/_meta", V2025_06_18),
        since("Tool", "/icons", V2025_11_25),
        ("Tool", "/execution", V2025_11_25..=V2025_11_25),
        since("Prompt", "/title", V2025_06_18),
        since("Prompt", "/arguments/0/title", V2025_06_18),
        since("Prompt", "/icons", V2025_11_25),
        since("Resource", "/title", V2025_06_18),
        since("Resource", "/_meta", V2025_06_18),
        since("Resource", "/icons", V2025_11_25),
        since("Resource", "/annotations/audience", V2024_11_05),
        since("Resource", "/annotations/lastModified", V2025_06_18),
        since("TextContent", "/annotations/lastModified", V2025_06_18),
        since("TextContent", "/_meta", V2025_06_18),
        since("Root", "/_meta", V2025_06_18),
        since("Implementation", "/title", V2025_06_18),
        since("Implementation", "/websiteUrl", V2025_11_25),
        since("Implementation", "/icons", V2025_11_25),
        since("CallToolResult", "/structuredContent", V2025_06_18),
        since("CallToolResult", "/_meta", V2024_11_05),
        since("CallToolResult", "/resultType", V2026_07_28),
        since("ListToolsResult", "/resultType", V2026_07_28),
        since("ListToolsResult", "/ttlMs", V2026_07_28),
        since("ListToolsResult", "/cacheScope", V2026_07_28),
        since("ReadResourceResult", "/ttlMs", V2026_07_28),
        since("ProgressNotification/properties/params", "/message", V2025_03_26),
        since("CompleteRequest/properties/params", "/context", V2025_06_18),
        since("CompleteRequest/properties/params", "/ref/title", V2025_06_18),
        since("CallToolRequest/properties/params", "/requestState", V2026_07_28),
        ("CallToolRequest/properties/params", "/task", V2025_11_25..=V2025_11_25),
        since("CreateMessageRequest/properties/params", "/tools", V2025_11_25),
        ("CreateMessageRequest/properties/params", "/_meta", V2024_11_05..=V2025_11_25),
        ("ElicitRequestURLParams", "/elicitationId", V2025_11_25..=V2025_11_25),
        ("CreateTaskResult", "/task", V2025_11_25..=V2025_11_25),
        since("CreateTaskResult", "/resultType", V2026_07_28),
        ("GetTaskResult", "/ttl", V2025_11_25..=V2025_11_25),
        since("GetTaskResult", "/inputRequests", V2026_07_28),
        ("ListRootsResult", "/_meta", V2024_11_05..=V2025_11_25),
        since("ServerCapabilities", "/completions", V2025_03_26),
        since("ServerCapabilities", "/extensions", V2026_07_28),
        ("ServerCapabilities", "/tasks", V2025_11_25..=V2025_11_25),
        since("ClientCapabilities", "/elicitation", V2025_06_18),
        since("ClientCapabilities", "/elicitation/url", V2025_11_25),
        since("ClientCapabilities", "/sampling/tools", V2025_11_25),
        since("ClientCapabilities", "/extensions", V2026_07_28),
        ("ClientCapabilities", "/tasks", V2025_11_25..=V2025_11_25),
        ("ClientCapabilities", "/roots/listChanged", V2024_11_05..=V2025_11_25),
    ];
    let rows = rows();
    for (definition, path, revisions) in members {
        let row = rows.iter().find(|row| row.definition == definition).unwrap();
        for revision in Revision::ALL {
            let value = row.full(revision);
            let expected = revisions.contains(&revision);
            assert_eq!(value.pointer(path).is_some(), expected, "{definition}{path} in {revision}: {value}");
            if !expected && !OPEN_MEMBERS.contains(&path) {
                assert_member_rejected(row, revision, value, path, &row.full(*revisions.start()));
            }
        }
    }
}

/// Members of objects that older schemas leave open.
const OPEN_MEMBERS: [&str; 2] = ["/elicitation/url", "/sampling/tools"];

/// Checks against the schema that a revision lacks a member: with the member added from another revision, `value` is
/// invalid.
fn assert_member_rejected(row: &Row, revision: Revision, mut value: Value, path: &str, other: &Value) {
    let (revision, definition) = (revision.as_str(), row.definition);
    let Some(schemas) = Schemas::find().filter(|schemas| schemas.has_definition(revision, definition)) else {
        return;
    };
    let Some((parent, key)) = path.rsplit_once('/') else { return };
    let Some(parent) = value.pointer_mut(parent) else { return };
    parent[key] = other.pointer(path).cloned().unwrap_or_default();
    assert!(
        schemas.check_exactly(revision, definition, &value).is_err(),
        "{definition}{path} is in {revision}"
    );
}

/// Checks the encoding of `T`: `older` before `since`, unchanged from then on, and always valid as `definition`.
fn assert_fallback<T: DeserializeOwned + Encode>(
    definition: &str,
    value: &Value,
    since: Revision,
    older: &Value,
) {
    for revision in Revision::ALL {
        let written = reencode::<T>(value, revision);
        assert_eq!(&written, if revision < since { older } else { value }, "{revision}");
        if let Some(schemas) =
            Schemas::find().filter(|schemas| schemas.has_definition(revision.as_str(), definition))
        {
            schemas.check_exactly(revision.as_str(), definition, &written).expect(definition);
        }
    }
}

#[test]
fn content_that_a_revision_lacks_takes_another_form() {
    let annotations = json!({"priority": 0.5});
    let audio = json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav", "annotations": annotations});
    let embedded = json!({
        "type": "resource", "annotations": annotations,
        "resource": {"uri": "attachment:audio", "mimeType": "audio/wav", "blob": "AA=="},
    });
    assert_fallback::<Content>("PromptMessage/properties/content", &audio, V2025_03_26, &embedded);
    let link = json!({"type": "resource_link", "uri": "file:///r", "name": "r", "annotations": annotations});
    let text = json!({"type": "text", "text": "r: file:///r", "annotations": annotations});
    assert_fallback::<Content>("PromptMessage/properties/content", &link, V2025_06_18, &text);
}

#[test]
fn a_conversation_has_one_block_of_a_known_kind_in_older_revisions() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let message = |content: Value| json!({"role": "user", "content": content});
    let several = message(json!([text("a"), text("b")]));
    assert_fallback::<SamplingMessage>("SamplingMessage", &several, V2025_11_25, &message(text("a")));
    assert_fallback::<SamplingMessage>(
        "SamplingMessage",
        &message(json!([])),
        V2025_11_25,
        &message(text("")),
    );
    let audio = message(json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}));
    assert_fallback::<SamplingMessage>(
        "SamplingMessage",
        &audio,
        V2025_03_26,
        &message(text("(audio of type audio/wav)")),
    );
}

#[test]
fn structured_results_are_objects_in_older_revisions() {
    let structured = |value: &Value, revision| {
        let result = json!({"content": [], "structuredContent": value});
        reencode::<CallToolResult>(&result, revision).get("structuredContent").cloned()
    };
    let schema = |value: &Value, revision| {
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": value});
        reencode::<Tool>(&tool, revision).get("outputSchema").cloned()
    };
    let object = json!({"a": 1});
    let object_schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    for revision in [V2025_06_18, V2025_11_25] {
        for value in [json!([1]), json!("text"), json!(7), json!(false)] {
            assert_eq!(structured(&value, revision), Some(json!({"result": value})));
            assert_eq!(structured(&value, V2026_07_28), Some(value));
        }
        assert_eq!(structured(&object, revision), Some(object.clone()));
        assert_eq!(schema(&object_schema, revision), Some(object_schema.clone()));
        let list = json!({"type": "array", "items": {"type": "string"}});
        let wrapped = json!({"type": "object", "properties": {"result": list}, "required": ["result"]});
        assert_eq!(schema(&list, revision), Some(wrapped));
        assert_eq!(schema(&list, V2026_07_28), Some(list));
    }
    assert_eq!(structured(&object, V2025_03_26), None);
    assert_eq!(schema(&object_schema, V2025_03_26), None);
}

#[test]
fn references_follow_a_schema_into_its_wrapping() {
    let draft = "https://json-schema.org/draft/2020-12/schema";
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {
        "$schema": draft, "type": "array", "items": {"$ref": "#/$defs/Node"},
        "$defs": {"Node": {"anyOf": [{"$ref": "#"}, {"$ref": "#name"}, {"$ref": "https://example.com/s"}]}},
    }});
    let wrapped = reencode::<Tool>(&tool, V2025_11_25);
    let expected = json!({
        "$schema": draft, "type": "object", "required": ["result"],
        "properties": {"result": {
            "type": "array", "items": {"$ref": "#/properties/result/$defs/Node"},
            "$defs": {"Node": {"anyOf": [
                {"$ref": "#/properties/result"}, {"$ref": "#name"}, {"$ref": "https://example.com/s"},
            ]}},
        }},
    });
    assert_eq!(wrapped["outputSchema"], expected);
    assert_eq!(reencode::<Tool>(&tool, V2026_07_28), tool);
}

#[test]
fn forms_are_plain_in_the_first_revision_that_has_them() {
    let form = |properties: Value| json!({"message": "m", "requestedSchema": {"type": "object", "properties": properties}});
    let rich = form(json!({
        "choice": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
        "text": {"type": "string", "default": "d"},
        "yes": {"type": "boolean", "default": true},
    }));
    let plain = form(json!({
        "choice": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        "text": {"type": "string"},
        "yes": {"type": "boolean", "default": true},
    }));
    assert_fallback::<ElicitParams>("ElicitRequest/properties/params", &rich, V2025_11_25, &plain);
}

#[test]
fn errors_have_the_code_and_the_id_of_their_revision() {
    let missing = Error::ResourceNotFound { uri: "a:b".into() };
    for revision in Revision::ALL {
        let object = error_object(&missing, revision);
        assert_eq!(object.code, if revision == V2026_07_28 { -32602 } else { -32002 });
        assert_eq!(object.data, Some(json!({"uri": "a:b"})));
        let anonymous = error_without_id(revision, &object);
        let expected = if revision < V2025_11_25 { Some(&Value::Null) } else { None };
        assert_eq!(anonymous.get("id"), expected, "{revision}");
        if let Some(schemas) = Schemas::find() {
            schemas.check_error(revision.as_str(), &anonymous).unwrap();
        }
    }
}

/// Returns an error response to a message whose id could not be read.
fn error_without_id(revision: Revision, error: &ErrorObject) -> Value {
    let unknown = if revision.has(Feature::AnonymousErrors) {
        write::UnknownId::Absent
    } else {
        write::UnknownId::Null
    };
    let mut out = Vec::new();
    write::error(None, unknown, error, &mut out);
    serde_json::from_slice(&out).expect("an error response is JSON")
}
