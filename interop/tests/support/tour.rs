//! What using everything that a server of this folder has is expected to report, and in which revisions.

use linchpin::Revision;
use serde_json::{Value, json};

pub(crate) const OLDEST: Revision = Revision::V2024_11_05;
pub(crate) const BATCHES: Revision = Revision::V2025_03_26;
pub(crate) const FORMS: Revision = Revision::V2025_06_18;
pub(crate) const NEWEST_SESSION: Revision = Revision::V2025_11_25;
pub(crate) const STATELESS: Revision = Revision::V2026_07_28;

/// What a tour of any of the servers reports in a revision.
pub(crate) fn expected(revision: Revision) -> Value {
    json!({
        "revision": revision.as_str(),
        "tools": ["add", "ask", "echo", "fail", "folders", "sample", "slow"],
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
