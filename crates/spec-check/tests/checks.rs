//! Each check accepts valid messages and reports what is invalid.

use serde_json::{Value, json};
use spec_check::Schemas;

const FIRST: &str = "2024-11-05";
const BATCHES: &str = "2025-03-26";
const SESSION: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// Asserts that `checked` is an error that contains `says`.
fn assert_error(checked: Result<(), String>, says: &str) {
    let fault = checked.expect_err(says);
    assert!(fault.contains(says), "{fault:?} should say {says:?}");
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn result(result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

#[test]
fn values_are_checked_against_definitions() {
    let Some(schemas) = Schemas::find() else { return };
    assert_eq!(schemas.revisions().next(), Some(FIRST));
    for revision in schemas.revisions() {
        let root = json!({"uri": "file:///a", "name": "a", "extra": 1});
        schemas.check(revision, "Root", &root).unwrap();
        assert_error(schemas.check_exactly(revision, "Root", &root), "'extra' was unexpected");
        assert_error(
            schemas.check(revision, "Root", &json!({"uri": "file:///a", "name": 1})),
            "at /name: 1 is not",
        );
        assert_error(
            schemas.check(revision, "Root", &json!({"uri": "no uri"})),
            "at /uri: \"no uri\" is not a \"uri\"",
        );
        assert_error(schemas.check(revision, "Rot", &root), "no definition \"Rot\"");
        assert!(schemas.has_definition(revision, "CallToolRequest/properties/params"));
        assert!(schemas.members(revision, "CallToolRequest/properties/params").contains("arguments"));
        assert!(schemas.methods(revision).contains("notifications/cancelled"));
    }
    assert_error(schemas.check("1999-01-01", "Root", &json!({})), "no schema for revision \"1999-01-01\"");
}

#[test]
fn of_a_choice_the_nearest_branch_is_reported() {
    let Some(schemas) = Schemas::find() else { return };
    let image = json!({"content": [{"type": "image", "data": "", "mimeType": 3}]});
    for revision in [FIRST, SESSION] {
        assert_error(schemas.check(revision, "CallToolResult", &image), "at /content/0/mimeType: 3 is not");
    }
}

#[test]
fn requests_need_their_envelope_their_method_and_its_params() {
    let Some(schemas) = Schemas::find() else { return };
    let call = request("tools/call", &json!({"name": "t"}));
    for revision in schemas.revisions().filter(|revision| *revision != STATELESS) {
        schemas.check_request(revision, &call).unwrap();
        schemas.check_request(revision, &request("ping", &json!({}))).unwrap();
        assert_error(
            schemas.check_request(revision, &request("tools/call", &json!({}))),
            "\"name\" is a required",
        );
        assert_error(
            schemas.check_request(revision, &json!({"jsonrpc": "2.0", "method": "ping"})),
            "\"id\" is a req",
        );
        assert_error(
            schemas.check_request(revision, &request("no/method", &json!({}))),
            "no request \"no/method\"",
        );
    }
    assert_error(schemas.check_request(STATELESS, &call), "\"_meta\" is a required");
    assert_error(schemas.check_request(STATELESS, &request("ping", &json!({}))), "no request \"ping\"");
    assert_error(schemas.check_request(STATELESS, &request("roots/list", &json!({}))), "only inside results");
}

#[test]
fn notifications_need_theirs() {
    let Some(schemas) = Schemas::find() else { return };
    for revision in schemas.revisions() {
        let cancelled = |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        schemas.check_notification(revision, &cancelled(json!("a"))).unwrap();
        assert_error(
            schemas.check_notification(revision, &cancelled(json!(1.5))),
            "at /params/requestId: 1.5",
        );
        let numbered = request("notifications/cancelled", &json!({"requestId": 1}));
        assert_error(schemas.check_notification(revision, &numbered), "no \"id\"");
        let unknown = json!({"jsonrpc": "2.0", "method": "tools/list"});
        assert_error(schemas.check_notification(revision, &unknown), "no notification \"tools/list\"");
    }
}

#[test]
fn results_are_those_of_their_method() {
    let Some(schemas) = Schemas::find() else { return };
    for revision in schemas.revisions() {
        let kind = if revision == STATELESS { json!("complete") } else { Value::Null };
        let complete = |members: Value| {
            let mut members = members;
            if !kind.is_null() {
                members["resultType"] = kind.clone();
            }
            result(&members)
        };
        schemas.check_result(revision, "tools/call", &complete(json!({"content": []}))).unwrap();
        schemas.check_result(revision, "my/own", &complete(json!({"any": 1}))).unwrap();
        assert_error(
            schemas.check_result(revision, "tools/call", &complete(json!({}))),
            "\"content\" is a required",
        );
        assert_error(schemas.check_result(revision, "my/own", &result(&json!([]))), "[] is not of type");
        assert_error(
            schemas.check_result(revision, "my/own", &json!({"jsonrpc": "2.0", "result": {}})),
            "\"id\"",
        );
        if revision != STATELESS {
            schemas.check_result(revision, "ping", &result(&json!({}))).unwrap();
            assert_error(
                schemas.check_result(revision, "ping", &result(&json!({"_meta": 1}))),
                "at /result/_meta: 1",
            );
        }
    }
    assert_error(
        schemas.check_result(STATELESS, "my/own", &result(&json!({}))),
        "\"resultType\" is a required",
    );
}

#[test]
fn input_may_be_required_only_where_the_revision_says_so() {
    let Some(schemas) = Schemas::find() else { return };
    let asking = |method: &str| {
        result(&json!({"resultType": "input_required", "inputRequests": {"q": {"method": method}}}))
    };
    schemas.check_result(STATELESS, "tools/call", &asking("roots/list")).unwrap();
    assert_error(schemas.check_result(STATELESS, "tools/call", &asking("my/own")), "/inputRequests/q");
    assert_error(
        schemas.check_result(STATELESS, "tools/list", &asking("roots/list")),
        "must not have an input_required result",
    );
    assert_error(
        schemas.check_result(SESSION, "tools/call", &asking("roots/list")),
        "must not have an input_required result",
    );
}

#[test]
fn errors_may_lack_an_id_in_the_way_of_their_revision() {
    let Some(schemas) = Schemas::find() else { return };
    let error = json!({"code": -32700, "message": "no JSON"});
    for revision in schemas.revisions() {
        let newer = revision >= SESSION;
        schemas.check_error(revision, &json!({"jsonrpc": "2.0", "id": 1, "error": error})).unwrap();
        let null = schemas.check_error(revision, &json!({"jsonrpc": "2.0", "id": null, "error": error}));
        let absent = schemas.check_error(revision, &json!({"jsonrpc": "2.0", "error": error}));
        assert_eq!((null.is_ok(), absent.is_ok()), (!newer, newer), "{revision}");
        let text = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": "c", "message": "m"}});
        assert_error(schemas.check_error(revision, &text), "at /error/code: \"c\" is not");
    }
    let version = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "m", "data": {}}});
    assert_error(schemas.check_error(STATELESS, &version), "at /error/data: \"requested\" is a required");
}

#[test]
fn batches_exist_in_one_revision_and_do_not_mix() {
    let Some(schemas) = Schemas::find() else { return };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}});
    for revision in schemas.revisions() {
        assert_eq!(
            schemas.check_batch(revision, &json!([ping, note])).is_ok(),
            revision == BATCHES,
            "{revision}"
        );
    }
    schemas.check_batch(BATCHES, &json!([result(&json!({})), error])).unwrap();
    assert_error(schemas.check_batch(BATCHES, &json!([ping, error])), "either requests");
    assert_error(schemas.check_batch(BATCHES, &json!([])), "at least one");
    assert_error(schemas.check_batch(BATCHES, &json!({})), "must be an array");
    let wrong = request("tools/call", &json!({}));
    assert_error(
        schemas.check_batch(BATCHES, &json!([ping, wrong])),
        "message 1 of the batch: not a valid CallTool",
    );
    assert_error(
        schemas.check_batch(BATCHES, &json!([{"jsonrpc": "2.0", "id": 1}])),
        "\"result\" is a required",
    );
    assert_error(schemas.check_batch(SESSION, &json!([ping])), "has no batches");
}

#[test]
fn examples_are_found() {
    let Some(schemas) = Schemas::find() else { return };
    assert!(schemas.examples(FIRST).is_empty());
    let examples = schemas.examples(STATELESS);
    assert!(examples.iter().any(|one| one.definition == "Root" && one.name == "project-directory.json"));
}

#[test]
fn messages_of_the_tasks_extension_are_checked_by_hand() {
    let Some(schemas) = Schemas::find() else { return };
    let task = json!({
        "resultType": "task", "taskId": "t", "status": "working", "createdAt": "2026-07-28T00:00:00Z",
        "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": null,
    });
    let with = |changes: &Value| {
        let mut task = task.clone();
        task.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        task
    };
    let check = |method: &str, value: &Value| schemas.check_result(STATELESS, method, &result(value));
    check("tools/call", &task).unwrap();
    assert_error(check("prompts/get", &task), "must not return a task");
    assert_error(check("tools/call", &with(&json!({"ttlMs": "1"}))), "\"ttlMs\" must not be \"1\"");
    assert_error(check("tools/call", &with(&json!({"ttl": 1}))), "unexpected member \"ttl\"");
    assert_error(check("tasks/get", &task), "resultType \"task\"");
    let complete = |changes: Value| {
        let mut changes = changes;
        changes["resultType"] = "complete".into();
        with(&changes)
    };
    check("tasks/get", &complete(json!({}))).unwrap();
    assert_error(check("tasks/get", &complete(json!({"status": "failed"}))), "needs \"error\"");
    assert_error(check("tasks/get", &complete(json!({"status": "completed"}))), "needs \"result\"");
    assert_error(
        check("tasks/get", &complete(json!({"status": "input_required"}))),
        "needs \"inputRequests\"",
    );
    assert_error(check("tasks/get", &complete(json!({"result": {}}))), "unexpected member \"result\"");
    check("tasks/cancel", &json!({"resultType": "complete"})).unwrap();
    assert_error(check("tasks/cancel", &complete(json!({}))), "unexpected member");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let ask = |method: &str, params: &Value| schemas.check_request(STATELESS, &request(method, params));
    ask("tasks/get", &json!({"taskId": "t", "_meta": meta})).unwrap();
    assert_error(ask("tasks/get", &json!({"taskId": "t"})), "RequestMetaObject");
    assert_error(ask("tasks/update", &json!({"taskId": "t", "_meta": meta})), "InputResponses");
    let notification =
        json!({"jsonrpc": "2.0", "method": "notifications/tasks", "params": complete(json!({}))});
    assert_error(schemas.check_notification(STATELESS, &notification), "unexpected member \"resultType\"");
}
