//! Expected report of the feature tour, by revision.

use linchpin::Revision;
use serde_json::{Value, json};

/// The first revision.
pub const OLDEST: Revision = Revision::ALL[0];
/// The revision with batches.
pub const BATCHES: Revision = Revision::ALL[1];
/// The first revision with form elicitation.
pub const FORMS: Revision = Revision::ALL[2];
/// The last revision with sessions.
pub const NEWEST_SESSION: Revision = Revision::ALL[3];
/// The first revision without sessions.
pub const STATELESS: Revision = Revision::ALL[4];

/// Returns the expected report of a tour in a revision.
pub fn expected(revision: Revision) -> Value {
    json!({
        "revision": revision.as_str(),
        "tools": [
            "add", "announce", "ask", "cancelled", "echo", "fail", "folders", "log", "sample", "slow", "touch", "wait"
        ],
        "add": { "sum": 2.5 },
        "echo": "grüße",
        "slow": "done",
        "progress": [
            { "progress": 1, "total": 3, "message": "step 1" },
            { "progress": 2, "total": 3, "message": "step 2" },
            { "progress": 3, "total": 3, "message": "step 3" }
        ],
        "ask": "hello Ada",
        "sample": "sampled",
        "folders": "file:///tmp/a",
        "fail": { "isError": true, "text": "this tool always fails" },
        "status": "ok",
        "memo": "memo 7",
        "prompt": "Review this rust code."
    })
}

/// Returns the additional report of a tour over HTTP.
pub fn expected_notifications() -> Value {
    json!({
        "log": { "level": "info", "data": "a line" },
        "updated": "memo://status",
        "changed": "tools",
        "complete": ["rust", "ruby"],
        "cancel": "a call was cancelled",
    })
}

/// Returns the expected report of a client over HTTP with our server in a revision. `report` is the actual one.
pub fn expected_of_client(client: &str, agreed: Revision, report: &Value) -> Value {
    let mut wanted = expected(agreed);
    join(&mut wanted, expected_notifications());
    wanted["unknownTool"] = json!(-32602);
    // The TypeScript SDK 2.x maps the error code of the older revisions to that of the newest.
    let new_code = agreed == STATELESS || client == "client-modern.mjs";
    wanted["unknownResource"] = if new_code { json!(-32602) } else { json!(-32002) };
    let missing: &[&str] = match client {
        "client-1.py" => &["cancel"], // its SDK does not support it
        "client-fastmcp.py" => &["cancel", "updated", "changed"],
        _ => &[],
    };
    wanted.as_object_mut().unwrap().retain(|step, _| !missing.contains(&&**step));
    if agreed < FORMS {
        wanted["add"] = r#"{"sum":2.5}"#.into();
        wanted["ask"] = report["ask"].clone(); // the revision has no form elicitation
        assert!(report["ask"].to_string().contains("elicitation"), "{report:#}");
    }
    if agreed == OLDEST {
        let steps = [1, 2, 3].map(|step| json!({ "progress": step, "total": 3 }));
        wanted["progress"] = steps.to_vec().into();
    }
    wanted
}

/// Adds the members of one report to another.
pub fn join(report: &mut Value, more: Value) {
    let (Value::Object(report), Value::Object(more)) = (report, more) else {
        panic!("a report must be an object")
    };
    report.extend(more);
}
