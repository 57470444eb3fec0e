//! Call pipeline: admission, approval, execution, cancellation and records of tool calls.

pub(super) mod admit;
pub(super) mod approvals;
pub(super) mod cancel;
pub(super) mod deferred;
pub(super) mod execute;
pub(super) mod plan;
pub(super) mod recent_results;
pub(super) mod records;
pub(super) mod schema_cache;
pub(super) mod snapshots;
