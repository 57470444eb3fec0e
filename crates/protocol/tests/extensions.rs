//! Round trips of the extensions of the latest revision. No official schema describes them: the JSON follows the
//! specifications of the extensions.

use linchpin_protocol::Revision::{self, V2025_11_25, V2026_07_28};
use linchpin_protocol::encode::{Encode, to_value};
use linchpin_protocol::model::{
    CancelTaskResult, ClientCapabilities, CreateTaskResult, EmptyResult, GetSkillParams, GetSkillResult,
    GetTaskPayloadResult, GetTaskResult, ListSkillsResult, ReadResourceDirectoryParams,
    ReadResourceDirectoryResult, ServerCapabilities, Skill, SkillResources, SkillsSettings,
    SubscriptionFilter, Task, TaskDetail, TaskParams, TaskStatus, TaskStatusParams, UpdateTaskParams,
    extension,
};
use linchpin_protocol::wire::{InvalidValue, decode, encode_result};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spec_check::Schemas;

fn read<T: DeserializeOwned>(json: &Value) -> T {
    decode(&json.to_string()).unwrap_or_else(|fault| panic!("{} at {:?} of {json}", fault.reason, fault.path))
}

fn decode_error<T: DeserializeOwned>(json: &Value) -> InvalidValue {
    decode::<T>(&json.to_string()).map(|_| ()).expect_err("decoding must fail")
}

/// Checks that the value decodes as `T` and is encoded unchanged.
fn assert_round_trip<T: DeserializeOwned + Encode>(json: &Value) {
    assert_eq!(&to_value(&read::<T>(json), Revision::LATEST), json);
}

/// Returns a task of the extension with additional members.
fn task(status: &str, members: &Value) -> Value {
    let mut task = json!({
        "taskId": "task-1", "status": status, "createdAt": "2026-01-12T15:00:58Z",
        "lastUpdatedAt": "2026-01-12T15:01:58Z", "ttlMs": 60000, "pollIntervalMs": 500,
    });
    merge(&mut task, members);
    task
}

fn merge(into: &mut Value, members: &Value) {
    for (key, value) in members.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

fn every_state() -> [Value; 5] {
    let question = json!({"name": {"method": "elicitation/create", "params": {
        "message": "Who are you?", "requestedSchema": {"type": "object", "properties": {}},
    }}});
    [
        task("working", &json!({"statusMessage": "half way"})),
        task("input_required", &json!({"inputRequests": question})),
        task(
            "completed",
            &json!({"result": {"content": [{"type": "text", "text": "done"}], "isError": false}}),
        ),
        task("failed", &json!({"error": {"code": -32603, "message": "broken", "data": {"why": [1]}}})),
        task("cancelled", &json!({"ttlMs": null})),
    ]
}

#[test]
fn a_task_tells_its_state_in_results_and_notifications() {
    for state in every_state() {
        let mut result = json!({"resultType": "complete", "_meta": {"a/b": 1}});
        merge(&mut result, &state);
        assert_round_trip::<GetTaskResult>(&result);
        let mut notice = state;
        notice["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": "s"});
        assert_round_trip::<TaskStatusParams>(&notice);
    }
    let detail = |state: &Value| read::<GetTaskResult>(state).detail;
    let [working, asking, completed, failed, cancelled] = every_state();
    assert_eq!((detail(&working), detail(&cancelled)), (None, None));
    let Some(TaskDetail::InputRequests(input_requests)) = detail(&asking) else {
        panic!("no input requests")
    };
    assert_eq!(input_requests["name"].method, "elicitation/create");
    let Some(TaskDetail::Result(result)) = detail(&completed) else { panic!("no result") };
    assert_eq!(result["isError"], false);
    let Some(TaskDetail::Error(error)) = detail(&failed) else { panic!("no error") };
    assert_eq!((error.code, &*error.message), (-32603, "broken"));
}

#[test]
fn what_belongs_to_another_state_does_not_count() {
    let strange = task("working", &json!({"result": {}, "error": {"code": 1, "message": "m"}}));
    assert_eq!(read::<GetTaskResult>(&strange).detail, None);
}

#[test]
fn a_task_that_lacks_something_is_refused() {
    for member in ["taskId", "status", "createdAt", "lastUpdatedAt"] {
        let mut lacking = task("working", &json!({}));
        lacking[member].take();
        for fault in [decode_error::<Task>(&lacking), decode_error::<CreateTaskResult>(&lacking)] {
            assert!(fault.reason.contains(member), "{fault:?}");
        }
    }
    let unknown = decode_error::<Task>(&task("asleep", &json!({})));
    assert_eq!(unknown.path, "/status");
}

/// Both forms decode to the same task: flat with its own `resultType` in the extension, nested in core tasks.
#[test]
fn a_request_that_becomes_a_task_is_answered_in_the_form_of_its_revision() {
    let mut flat = json!({"resultType": "task", "_meta": {"a/b": 1}});
    merge(&mut flat, &task("working", &json!({})));
    let nested = json!({
        "task": {
            "taskId": "task-1", "status": "working", "createdAt": "2026-01-12T15:00:58Z",
            "lastUpdatedAt": "2026-01-12T15:01:58Z", "ttl": 60000, "pollInterval": 500,
        },
        "_meta": {"a/b": 1},
    });
    for form in [&flat, &nested] {
        let created: CreateTaskResult = read(form);
        assert_eq!(to_value(&created, V2026_07_28), flat);
        assert_eq!(to_value(&created, V2025_11_25), nested);
    }
    let mut out = Vec::new();
    let identity = br#""io.modelcontextprotocol/serverInfo":{"name":"n","version":"1"}"#;
    encode_result(V2026_07_28, &read::<CreateTaskResult>(&flat), identity, &mut out);
    let sent: Value = serde_json::from_slice(&out).expect("a result is JSON");
    assert_eq!(sent["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "n");
}

#[test]
fn the_core_form_leaves_out_what_a_state_brings_with_it() {
    for state in every_state() {
        let written = to_value(&read::<GetTaskResult>(&state), V2025_11_25);
        assert_eq!(written["ttl"], state["ttlMs"]);
        let Some(schemas) = Schemas::find() else { continue };
        let check = |value| schemas.check_exactly(V2025_11_25.as_str(), "GetTaskResult", value);
        check(&written).expect("a task of the core");
        check(&state).expect_err("the core has no task of the extension");
    }
}

#[test]
fn giving_up_a_task_is_only_acknowledged_in_the_extension() {
    let acknowledged = json!({"resultType": "complete"});
    assert_round_trip::<CancelTaskResult>(&acknowledged);
    assert_round_trip::<EmptyResult>(&acknowledged);
    let given_up = CancelTaskResult { task: Some(read(&task("cancelled", &json!({})))), meta: None };
    assert_eq!(to_value(&given_up, V2026_07_28), acknowledged);
    assert_eq!(to_value(&given_up, V2025_11_25)["status"], "cancelled");
}

#[test]
fn the_result_of_a_task_of_the_core_is_that_of_its_request() {
    let result = json!({
        "content": [], "structuredContent": {"a": 1},
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "task-1"}},
    });
    let payload: GetTaskPayloadResult = read(&result);
    assert_eq!(payload.result.len(), 2);
    assert_eq!(to_value(&payload, V2025_11_25), result);
}

#[test]
fn requests_about_tasks_come_back() {
    assert_round_trip::<TaskParams>(&json!({"taskId": "task-1", "_meta": {"progressToken": 1}}));
    assert_round_trip::<UpdateTaskParams>(&json!({
        "taskId": "task-1", "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
    }));
    assert_round_trip::<SubscriptionFilter>(
        &json!({"toolsListChanged": true, "taskIds": ["task-1", "task-2"]}),
    );
}

#[test]
fn capabilities_say_which_requests_can_become_tasks() {
    let server: ServerCapabilities = read(&json!({"tasks": {"requests": {"tools": {"call": {}}}}}));
    let tasks = server.tasks.expect("tasks");
    assert!(tasks.has_request("tools/call") && tasks.list.is_none());
    assert!(!tasks.has_request("tools/list") && !tasks.has_request("ping"));
    assert_round_trip::<ClientCapabilities>(&json!({"extensions": {extension::TASKS: {}}}));
    assert!(TaskStatus::Failed.is_terminal() && !TaskStatus::InputRequired.is_terminal());
}

fn skill() -> Value {
    let digest = format!("sha256:{}", "0f".repeat(32));
    json!({
        "uri": "skill://shop/refunds/SKILL.md",
        "frontmatter": {
            "name": "refunds", "description": "Pay money back", "license": "MIT", "metadata": {"version": 1.5},
        },
        "resources": [
            {"uri": "skill://shop/refunds/SKILL.md", "digest": digest, "size": 1200},
            {"uri": "skill://shop/refunds/letters/sorry.md", "digest": digest, "size": 0},
        ],
    })
}

#[test]
fn skills_come_back_with_all_that_their_author_wrote() {
    let made = json!({
        "uri": "skill://today/SKILL.md", "frontmatter": {"name": "today", "description": "The day so far"},
        "resources": "dynamic",
    });
    assert_eq!(read::<Skill>(&made).resources, SkillResources::Dynamic);
    assert_round_trip::<ListSkillsResult>(&json!({
        "resultType": "complete", "skills": [skill(), made], "nextCursor": "c", "ttlMs": 300_000,
        "cacheScope": "public", "_meta": {"a/b": 1},
    }));
    assert_round_trip::<GetSkillResult>(&json!({
        "resultType": "complete", "skill": skill(), "ttlMs": 0, "cacheScope": "private",
    }));
    assert_round_trip::<GetSkillParams>(
        &json!({"uri": "skill://today/SKILL.md", "_meta": {"progressToken": "p"}}),
    );
    assert_round_trip::<SkillsSettings>(&json!({"directoryRead": true}));
    assert_round_trip::<SkillsSettings>(&json!({}));
}

#[test]
fn a_skill_that_lacks_something_is_refused() {
    let fault = |path: &str, value: Value| {
        let mut skill = skill();
        *skill.pointer_mut(path).expect("a member of the skill") = value;
        decode_error::<Skill>(&skill)
    };
    for wrong in [Value::Null, json!("static"), json!({}), json!(true)] {
        let fault = fault("/resources", wrong);
        assert_eq!(fault.path, "/resources");
        assert!(fault.reason.contains("\"dynamic\""), "{fault:?}");
    }
    assert_eq!(fault("/resources/1/size", json!(-1)).path, "/resources/1/size");
    assert!(fault("/resources/0", json!({"uri": "a:b", "size": 1})).reason.contains("`digest`"));
    assert!(fault("/frontmatter", json!({"name": "refunds"})).reason.contains("`description`"));
    let mut without = skill();
    without.as_object_mut().expect("an object").remove("resources");
    assert!(decode_error::<Skill>(&without).reason.contains("`resources`"));
}

#[test]
fn folders_come_back() {
    assert_round_trip::<ReadResourceDirectoryParams>(&json!({"uri": "skill://shop/refunds", "cursor": "c"}));
    assert_round_trip::<ReadResourceDirectoryResult>(&json!({
        "resultType": "complete", "nextCursor": "c",
        "resources": [
            {"uri": "skill://shop/refunds/SKILL.md", "name": "SKILL.md", "mimeType": "text/markdown"},
            {"uri": "skill://shop/refunds/letters", "name": "letters", "mimeType": "inode/directory"},
        ],
    }));
}
