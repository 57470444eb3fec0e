//! Core tasks.

use linchpin_protocol::model::{
    CancelTaskResult, CreateTaskResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult, PageParams,
    RelatedTaskMetadata, Task, TaskMetadata, TaskParams, TaskStatusParams,
};
use serde_json::{Value, json};

use super::{FOURTH_ONLY, Row, meta, request_meta, row};

pub(super) fn rows() -> Vec<Row> {
    let task = json!({
        "taskId": "t", "status": "input_required", "statusMessage": "m", "createdAt": "2025-01-12T15:00:58Z",
        "lastUpdatedAt": "2025-01-12T15:01:58Z", "ttl": 60000, "pollInterval": 500,
    });
    let least = json!({
        "taskId": "t", "status": "working", "createdAt": "2025-01-12T15:00:58Z",
        "lastUpdatedAt": "2025-01-12T15:00:58Z", "ttl": null,
    });
    let with = |member: &str, value: Value| {
        let mut task = task.clone();
        task[member] = value;
        task
    };
    // Members that only the extension has are not encoded.
    let mut detailed = with("inputRequests", json!({"q": {"method": "roots/list"}}));
    detailed["_meta"] = meta();
    let named = json!({"taskId": "t", "_meta": request_meta()});
    let only_named = json!({"taskId": "t"});
    let params = |definition| row::<TaskParams>(definition, FOURTH_ONLY, named.clone(), only_named.clone());
    vec![
        row::<Task>("Task", FOURTH_ONLY, task.clone(), least.clone()),
        row::<TaskMetadata>("TaskMetadata", FOURTH_ONLY, json!({"ttl": 1}), json!({})),
        row::<RelatedTaskMetadata>(
            "RelatedTaskMetadata",
            FOURTH_ONLY,
            only_named.clone(),
            only_named.clone(),
        ),
        params("GetTaskRequest/properties/params"),
        params("GetTaskPayloadRequest/properties/params"),
        params("CancelTaskRequest/properties/params"),
        row::<PageParams>(
            "ListTasksRequest/properties/params",
            FOURTH_ONLY,
            json!({"cursor": "c", "_meta": request_meta()}),
            json!({}),
        ),
        row::<CreateTaskResult>(
            "CreateTaskResult",
            FOURTH_ONLY,
            json!({"task": task, "_meta": meta()}),
            json!({"task": least}),
        ),
        row::<GetTaskResult>("GetTaskResult", FOURTH_ONLY, detailed.clone(), least.clone()),
        row::<GetTaskPayloadResult>(
            "GetTaskPayloadResult",
            FOURTH_ONLY,
            json!({"content": [], "isError": true, "_meta": meta()}),
            json!({}),
        ),
        row::<CancelTaskResult>("CancelTaskResult", FOURTH_ONLY, with("_meta", meta()), least.clone()),
        row::<ListTasksResult>(
            "ListTasksResult",
            FOURTH_ONLY,
            json!({"tasks": [task], "nextCursor": "c", "_meta": meta()}),
            json!({"tasks": []}),
        ),
        row::<TaskStatusParams>("TaskStatusNotificationParams", FOURTH_ONLY, detailed, least),
    ]
}
