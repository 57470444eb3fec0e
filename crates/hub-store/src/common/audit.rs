//! SQL of the audit and its checkpoints.

use linchpin_hub_core::audit::Checkpoint;

use super::refusal::Refusal;
use super::value::Value;
use super::{Statement, to_integer, to_millis};

pub(crate) const CHECKPOINT_COLUMNS: &str = "number, hash, at, signature";

pub(crate) const SELECT_CHECKPOINT: &str = "SELECT number, hash, at, signature FROM checkpoints
     WHERE tenant = $1 ORDER BY number DESC LIMIT 1";
/// SQL that deletes the checkpoints of sealed entries, except the last checkpoint.
pub(crate) const DELETE_CHECKPOINTS: &str = "DELETE FROM checkpoints WHERE tenant = $1 AND number <= $2
     AND number < (SELECT max(number) FROM checkpoints WHERE tenant = $1)";
const INSERT_CHECKPOINT: &str =
    "INSERT INTO checkpoints (tenant, number, hash, at, signature) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT DO NOTHING";

/// Creates the statement that inserts a checkpoint.
pub(crate) fn insert_checkpoint<'a>(tenant: Value<'a>, checkpoint: &'a Checkpoint) -> Statement<'a> {
    let Checkpoint { head, at, signature, .. } = checkpoint;
    let values = vec![
        tenant,
        to_integer(head.number).into(),
        (&head.hash).into(),
        to_millis(*at).into(),
        signature.into(),
    ];
    Statement { sql: INSERT_CHECKPOINT, values, refusal: Refusal::Never }
}
