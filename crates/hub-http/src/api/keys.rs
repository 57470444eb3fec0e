//! The key that everything is sealed with.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::json;
use crate::asked::Asked;
use crate::problem::Result;

/// What was sealed again.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RotatedKeys {
    /// How many keys of tenants.
    tenants: usize,
}

pub(crate) async fn rotate(asked: Asked) -> Result<Response> {
    json(&RotatedKeys { tenants: asked.hub().rotate_keys(asked.scope()?).await? })
}
