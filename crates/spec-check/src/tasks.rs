//! Checks for the tasks extension, which no core schema contains, written by hand from its specification.
//!
//! The extension exists only in revisions with `resultType`; an older revision has tasks in its schema.

use serde_json::{Map, Value};

use crate::document::{Document, Members};

/// Reports whether a revision supports the tasks extension.
pub(crate) fn is_supported(document: &Document) -> bool {
    document.find("InputRequiredResult").is_some() && document.find("Task").is_none()
}

/// Reports whether a method belongs to the tasks extension.
pub(crate) fn has_method(method: &str) -> bool {
    matches!(method, "tasks/get" | "tasks/update" | "tasks/cancel" | "notifications/tasks")
}

/// Checks the parameters of a request or notification of the extension.
pub(crate) fn check_params(document: &Document, method: &str, params: &Value) -> Result<(), String> {
    let params = object(params, "params")?;
    if method == "notifications/tasks" {
        return check_detailed(document, params, &["_meta"]);
    }
    let meta = params.get("_meta").unwrap_or(&Value::Null);
    document.check("RequestMetaObject", meta, Members::Any)?;
    require_member(params, "taskId", Value::is_string)?;
    let is_update = method == "tasks/update";
    if is_update {
        let responses = params.get("inputResponses").unwrap_or(&Value::Null);
        document.check("InputResponses", responses, Members::Any)?;
    }
    reject_other_members(params, &["_meta", "taskId", if is_update { "inputResponses" } else { "taskId" }])
}

/// Checks a result of an extension method, or a task returned in place of a tool result.
pub(crate) fn check_result(document: &Document, method: &str, result: &Value) -> Result<(), String> {
    document.check("Result", result, Members::Any)?;
    let members = object(result, "result")?;
    let expected = if has_method(method) { "complete" } else { "task" };
    if members["resultType"] != expected {
        return Err(format!("the result of {method} has the resultType {}", members["resultType"]));
    }
    match method {
        "tools/call" => {
            check_task(members)?;
            reject_other_members(members, &[&TASK_MEMBERS[..], &["_meta", "resultType"]].concat())
        }
        "tasks/get" => check_detailed(document, members, &["_meta", "resultType"]),
        "tasks/update" | "tasks/cancel" => reject_other_members(members, &["_meta", "resultType"]),
        _ => Err(format!("{method} must not return a task")),
    }
}

const TASK_MEMBERS: [&str; 7] =
    ["taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"];

fn check_task(task: &Map<String, Value>) -> Result<(), String> {
    require_member(task, "taskId", Value::is_string)?;
    let statuses = ["working", "input_required", "completed", "cancelled", "failed"];
    require_member(task, "status", |status| {
        status.as_str().is_some_and(|status| statuses.contains(&status))
    })?;
    let time = |time: &Value| time.as_str().is_some_and(|time| time.contains('T') && time.ends_with('Z'));
    require_member(task, "createdAt", time)?;
    require_member(task, "lastUpdatedAt", time)?;
    require_member(task, "ttlMs", |ttl| ttl.is_u64() || ttl.is_null())?;
    check_optional_member(task, "pollIntervalMs", Value::is_u64)?;
    check_optional_member(task, "statusMessage", Value::is_string)
}

/// Checks a task with the members that its status requires. Members that belong to another status are errors.
fn check_detailed(
    document: &Document,
    task: &Map<String, Value>,
    extra_members: &[&str],
) -> Result<(), String> {
    check_task(task)?;
    let detail = match task["status"].as_str() {
        Some("input_required") => {
            let requests =
                task.get("inputRequests").ok_or("a task in input_required needs \"inputRequests\"")?;
            document.check("InputRequests", requests, Members::Any)?;
            &["inputRequests"][..]
        }
        Some("completed") => {
            let result = task.get("result").ok_or("a completed task needs \"result\"")?;
            document.check("CallToolResult", result, Members::Any)?;
            &["result"][..]
        }
        Some("failed") => {
            let error = task.get("error").ok_or("a failed task needs \"error\"")?;
            document.check("Error", error, Members::Any)?;
            &["error"][..]
        }
        _ => &[][..],
    };
    reject_other_members(task, &[&TASK_MEMBERS[..], detail, extra_members].concat())
}

fn object<'a>(value: &'a Value, noun: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{noun} must be an object"))
}

fn require_member(
    object: &Map<String, Value>,
    member: &str,
    is_valid: impl Fn(&Value) -> bool,
) -> Result<(), String> {
    let value = object.get(member).ok_or_else(|| format!("\"{member}\" is missing"))?;
    if is_valid(value) { Ok(()) } else { Err(format!("\"{member}\" must not be {value}")) }
}

fn check_optional_member(
    object: &Map<String, Value>,
    member: &str,
    is_valid: impl Fn(&Value) -> bool,
) -> Result<(), String> {
    if object.contains_key(member) { require_member(object, member, is_valid) } else { Ok(()) }
}

fn reject_other_members(object: &Map<String, Value>, members: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !members.contains(&key.as_str())) {
        Some(key) => Err(format!("unexpected member \"{key}\"")),
        None => Ok(()),
    }
}
