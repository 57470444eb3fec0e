//! Validation of messages against the official schemas, including members that the schema does not name. Without the
//! schemas next to the checkout nothing is validated, which `spec_check` reports once.

use linchpin::Revision;
use linchpin::model::key;
use serde_json::Value;
use spec_check::Schemas;

fn fail(result: Result<(), String>, revision: Revision, message: &Value) {
    if let Err(fault) = result {
        panic!("invalid in revision {revision}: {fault}\n{message}");
    }
}

/// Validates a request or notification of the client, unless the revision does not have its method.
pub(super) fn check_sent(revision: Revision, message: &Value) {
    let Some(schemas) = Schemas::find() else { return };
    let revision_name = revision.as_str();
    if !schemas.methods(revision_name).contains(message["method"].as_str().unwrap_or_default()) {
        return;
    }
    let checked = match message.get("id") {
        Some(_) => schemas.check_request(revision_name, message),
        None => schemas.check_notification(revision_name, message),
    };
    fail(checked, revision, message);
}

/// Validates the server's response to a request.
pub(super) fn check_answer(revision: Revision, method: &str, message: &Value) {
    let Some(schemas) = Schemas::find() else { return };
    let name = revision.as_str();
    if message.get("error").is_some() {
        return fail(schemas.check_error(name, message), revision, message);
    }
    fail(schemas.check_result(name, method, message), revision, message);
    let result = &message["result"];
    let definition = match result["resultType"].as_str() {
        Some("task") => None, // part of the extension, which has no schema
        Some("input_required") => Some("InputRequiredResult"),
        _ if method == "tools/call" && result.get("task").is_some() => Some("CreateTaskResult"),
        _ => result_of(method),
    };
    if let Some(definition) = definition.filter(|definition| schemas.has_definition(name, definition)) {
        fail(schemas.check_exactly(name, definition, result), revision, message);
    }
}

/// Validates an unsolicited message of the server: a server request, a notification, or an error about an unreadable
/// message.
pub(super) fn check_unsolicited(revision: Revision, message: &Value) {
    let Some(schemas) = Schemas::find() else { return };
    if message.get("error").is_some() {
        return fail(schemas.check_error(revision.as_str(), message), revision, message);
    }
    if message.get("id").is_some() {
        return fail(schemas.check_request(revision.as_str(), message), revision, message);
    }
    let subscribed = message.pointer("/params/_meta").and_then(|meta| meta.get(key::SUBSCRIPTION_ID));
    let revision = if subscribed.is_some() { Revision::LATEST } else { revision };
    let (name, method) = (revision.as_str(), message["method"].as_str().unwrap_or_default());
    if !schemas.methods(name).contains(method) && method.starts_with("x-") {
        return; // a custom notification of the server
    }
    fail(schemas.check_notification(name, message), revision, message);
    if let Some(definition) = params_of(method).filter(|definition| schemas.has_definition(name, definition))
    {
        let mut params = message["params"].clone();
        if let Some(filter) = params.get_mut("notifications").and_then(Value::as_object_mut) {
            filter.remove("taskIds"); // part of the extension, which has no schema
        }
        fail(schemas.check_exactly(name, definition, &params), revision, message);
    }
}

/// Validates the responses to a batch as a whole.
pub(super) fn check_batch(revision: Revision, batch: &Value) {
    if let Some(schemas) = Schemas::find() {
        fail(schemas.check_batch(revision.as_str(), batch), revision, batch);
    }
}

fn result_of(method: &str) -> Option<&'static str> {
    Some(match method {
        "initialize" => "InitializeResult",
        "server/discover" => "DiscoverResult",
        "tools/list" => "ListToolsResult",
        "tools/call" => "CallToolResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "completion/complete" => "CompleteResult",
        "subscriptions/listen" => "SubscriptionsListenResult",
        _ => return None,
    })
}

fn params_of(method: &str) -> Option<&'static str> {
    Some(match method {
        "notifications/progress" => "ProgressNotification/properties/params",
        "notifications/message" => "LoggingMessageNotification/properties/params",
        "notifications/resources/updated" => "ResourceUpdatedNotification/properties/params",
        "notifications/subscriptions/acknowledged" => {
            "SubscriptionsAcknowledgedNotification/properties/params"
        }
        _ => return None,
    })
}
