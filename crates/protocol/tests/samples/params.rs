//! Parameters of requests and notifications, and form fields.

use linchpin_protocol::model::{
    CallToolParams, CancelledParams, CompleteParams, CreateMessageParams, ElicitParams,
    ElicitationCompleteParams, EmptyParams, GetPromptParams, InitializeParams, LogParams, PageParams,
    ProgressParams, ReadResourceParams, ResourceUpdatedParams, SetLevelParams, SubscribeParams,
    SubscriptionsAcknowledgedParams, SubscriptionsListenParams,
};
use serde_json::{Value, json};

use super::{
    ALL, FOURTH, FOURTH_ONLY, Row, SESSION, STATELESS, THIRD, client_capabilities, field_row, filter,
    implementation, request_meta, row, tool,
};

pub(super) fn forms() -> Vec<Row> {
    let field = |members: Value| {
        let mut field = json!({"title": "F", "description": "d"});
        for (key, value) in members.as_object().into_iter().flatten() {
            field[key] = value.clone();
        }
        field
    };
    let titled = json!([{"const": "a", "title": "A"}]);
    let several = |items: Value| {
        field(json!({"type": "array", "items": items, "minItems": 1, "maxItems": 2, "default": ["a"]}))
    };
    let untitled_items = json!({"type": "string", "enum": ["a"]});
    let titled_items = json!({"anyOf": titled});
    let choice = json!({"type": "string", "enum": ["a"]});
    let titled_choice = json!({"type": "string", "oneOf": titled});
    let text =
        json!({"type": "string", "minLength": 1, "maxLength": 9, "format": "email", "default": "a@b.c"});
    vec![
        field_row("StringSchema", THIRD, field(text), json!({"type": "string"})),
        field_row(
            "NumberSchema",
            THIRD,
            field(json!({"type": "integer", "minimum": 1, "maximum": 9, "default": 2})),
            json!({"type": "number"}),
        ),
        field_row(
            "BooleanSchema",
            THIRD,
            field(json!({"type": "boolean", "default": true})),
            json!({"type": "boolean"}),
        ),
        field_row(
            "LegacyTitledEnumSchema or EnumSchema",
            THIRD,
            field(json!({"type": "string", "enum": ["a"], "enumNames": ["A"], "default": "a"})),
            choice.clone(),
        ),
        field_row(
            "UntitledSingleSelectEnumSchema",
            FOURTH,
            field(json!({"type": "string", "enum": ["a"], "default": "a"})),
            choice,
        ),
        field_row(
            "TitledSingleSelectEnumSchema",
            FOURTH,
            field(json!({"type": "string", "oneOf": titled, "default": "a"})),
            titled_choice,
        ),
        field_row(
            "UntitledMultiSelectEnumSchema",
            FOURTH,
            several(untitled_items.clone()),
            json!({"type": "array", "items": untitled_items}),
        ),
        field_row(
            "TitledMultiSelectEnumSchema",
            FOURTH,
            several(titled_items.clone()),
            json!({"type": "array", "items": titled_items}),
        ),
    ]
}

pub(super) fn client_params() -> Vec<Row> {
    let responses = json!({"q": {"action": "cancel"}});
    let empty = json!({"_meta": request_meta()});
    let subscribe = json!({"uri": "file:///r", "_meta": request_meta()});
    let initialize = json!({
        "protocolVersion": "1999-01-01", "capabilities": client_capabilities(), "clientInfo": implementation(),
        "_meta": request_meta(),
    });
    let least_initialize = json!({"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}});
    let call = json!({
        "name": "t", "arguments": {"a": [1, null]}, "inputResponses": responses, "requestState": "s",
        "task": {"ttl": 1}, "_meta": request_meta(),
    });
    let get = json!({
        "name": "p", "arguments": {"a": "b"}, "inputResponses": responses, "requestState": "s", "_meta": request_meta(),
    });
    let read = json!({
        "uri": "file:///r", "inputResponses": responses, "requestState": "s", "_meta": request_meta(),
    });
    let complete = json!({
        "ref": {"type": "ref/prompt", "name": "p", "title": "P"}, "argument": {"name": "a", "value": "v"},
        "context": {"arguments": {"b": "c"}}, "_meta": request_meta(),
    });
    let least_complete = json!({
        "ref": {"type": "ref/resource", "uri": "a:{b}"}, "argument": {"name": "a", "value": ""},
        "_meta": request_meta(),
    });
    let page = json!({"cursor": "c", "_meta": request_meta()});
    let named = json!({"name": "n", "_meta": request_meta()});
    let level = json!({"level": "debug", "_meta": request_meta()});
    let listen = json!({"notifications": filter(), "_meta": request_meta()});
    let least_listen = json!({"notifications": {}, "_meta": request_meta()});
    vec![
        row::<InitializeParams>("InitializeRequest/properties/params", SESSION, initialize, least_initialize),
        row::<EmptyParams>("PingRequest/properties/params", SESSION, empty.clone(), json!({})),
        row::<EmptyParams>("DiscoverRequest/properties/params", STATELESS, empty.clone(), empty.clone()),
        row::<PageParams>("ListToolsRequest/properties/params", ALL, page.clone(), empty.clone()),
        row::<PageParams>("ListPromptsRequest/properties/params", ALL, page.clone(), empty.clone()),
        row::<PageParams>("ListResourcesRequest/properties/params", ALL, page.clone(), empty.clone()),
        row::<PageParams>("ListResourceTemplatesRequest/properties/params", ALL, page, empty),
        row::<CallToolParams>("CallToolRequest/properties/params", ALL, call, named.clone()),
        row::<GetPromptParams>("GetPromptRequest/properties/params", ALL, get, named),
        row::<ReadResourceParams>("ReadResourceRequest/properties/params", ALL, read, subscribe.clone()),
        row::<CompleteParams>("CompleteRequest/properties/params", ALL, complete, least_complete),
        row::<SubscribeParams>(
            "SubscribeRequest/properties/params",
            SESSION,
            subscribe.clone(),
            json!({"uri": "a:b"}),
        ),
        row::<SubscribeParams>(
            "UnsubscribeRequest/properties/params",
            SESSION,
            subscribe,
            json!({"uri": "a:b"}),
        ),
        row::<SetLevelParams>(
            "SetLevelRequest/properties/params",
            SESSION,
            level,
            json!({"level": "emergency"}),
        ),
        row::<SubscriptionsListenParams>(
            "SubscriptionsListenRequest/properties/params",
            STATELESS,
            listen,
            least_listen,
        ),
    ]
}

pub(super) fn server_params() -> Vec<Row> {
    let message = json!({"role": "user", "content": {"type": "text", "text": "t"}});
    let sample = json!({
        "messages": [message], "modelPreferences": {}, "systemPrompt": "s", "includeContext": "none",
        "temperature": 0.5, "maxTokens": 9, "stopSequences": ["x"], "metadata": {"a": 1}, "tools": [tool()],
        "toolChoice": {"mode": "auto"}, "task": {"ttl": 1}, "_meta": {"progressToken": 1},
    });
    let form = json!({
        "mode": "form", "message": "m", "task": {"ttl": 1}, "_meta": {"progressToken": 1},
        "requestedSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["yes"],
            "properties": {
                "yes": {"type": "boolean", "default": true}, "text": {"type": "string", "default": "d"},
                "choice": {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
            },
        },
    });
    let url = json!({
        "mode": "url", "message": "m", "url": "https://example.com/u", "elicitationId": "e", "task": {"ttl": 1},
        "_meta": {"progressToken": 1},
    });
    let noted = |members: Value| {
        let mut params = members;
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": "s"});
        params
    };
    let progress = json!({"progressToken": "p", "progress": 0.5});
    vec![
        row::<CreateMessageParams>(
            "CreateMessageRequest/properties/params",
            ALL,
            sample,
            json!({"messages": [], "maxTokens": 1}),
        ),
        row::<ElicitParams>(
            "ElicitRequestFormParams or ElicitRequest/properties/params",
            THIRD,
            form,
            json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}}),
        ),
        row::<ElicitParams>(
            "ElicitRequestURLParams",
            FOURTH,
            url,
            json!({"mode": "url", "message": "m", "url": "a:b", "elicitationId": "e"}),
        ),
        row::<ElicitationCompleteParams>(
            "ElicitationCompleteNotification/properties/params",
            FOURTH_ONLY,
            noted(json!({"elicitationId": "e"})),
            json!({"elicitationId": "e"}),
        ),
        row::<CancelledParams>(
            "CancelledNotification/properties/params",
            ALL,
            noted(json!({"requestId": "r", "reason": "why"})),
            json!({"requestId": 1}),
        ),
        row::<ProgressParams>(
            "ProgressNotification/properties/params",
            ALL,
            noted(json!({"progressToken": 1, "progress": 1, "total": 2, "message": "m"})),
            progress,
        ),
        row::<LogParams>(
            "LoggingMessageNotification/properties/params",
            ALL,
            noted(json!({"level": "notice", "logger": "l", "data": {"a": [1.5]}})),
            json!({"level": "info", "data": "d"}),
        ),
        row::<ResourceUpdatedParams>(
            "ResourceUpdatedNotification/properties/params",
            ALL,
            noted(json!({"uri": "file:///r"})),
            json!({"uri": "file:///r"}),
        ),
        row::<EmptyParams>("ToolListChangedNotification/properties/params", ALL, noted(json!({})), json!({})),
        row::<SubscriptionsAcknowledgedParams>(
            "SubscriptionsAcknowledgedNotification/properties/params",
            STATELESS,
            noted(json!({"notifications": filter()})),
            json!({"notifications": {}}),
        ),
    ]
}
