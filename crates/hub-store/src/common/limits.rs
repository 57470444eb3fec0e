//! SQL of the token buckets of rate limits.

use jiff::Timestamp;
use linchpin_hub_core::rate_limit::TokenBucket;

use super::refusal::Refusal;
use super::value::Value;
use super::{Statement, to_millis};

pub(crate) const SELECT_BUCKET: &str = "SELECT level, at FROM buckets WHERE tenant = $1 AND id = $2";
const SAVE_BUCKET: &str = "INSERT INTO buckets (tenant, id, level, at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (tenant, id) DO UPDATE SET level = excluded.level, at = excluded.at";
const PRUNE_BUCKETS: &str = "DELETE FROM buckets WHERE tenant = $1 AND at < $2";

/// Creates the statement that stores a token bucket.
pub(crate) fn save_bucket<'a>(tenant: Value<'a>, id: &'a str, bucket: &TokenBucket) -> Statement<'a> {
    let values = vec![tenant, id.into(), bucket.tokens.into(), to_millis(bucket.updated).into()];
    Statement { sql: SAVE_BUCKET, values, refusal: Refusal::Never }
}

/// Creates the statement that deletes the buckets that were last used before `before`: they are full again by now.
pub(crate) fn prune_buckets(tenant: Value<'_>, before: Timestamp) -> Statement<'_> {
    let values = vec![tenant, to_millis(before).into()];
    Statement { sql: PRUNE_BUCKETS, values, refusal: Refusal::Never }
}
