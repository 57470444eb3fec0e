//! Key rotation.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::json;
use crate::asked::Asked;
use crate::problem::Result;

/// What is to be rotated.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct RotateKeys {
    /// Also make a new tenant key, and encrypt all secrets with it again. Default: false.
    data: Option<bool>,
}

/// What was rotated.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RotatedKeys {
    /// Tenant keys that the new root key wraps.
    tenants: usize,
    /// Secrets that were encrypted again with a new tenant key.
    secrets: usize,
    /// Secrets that could not be decrypted, and stay as they are.
    unreadable: usize,
}

pub(crate) async fn rotate(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let data = form.flag("data")?.unwrap_or(false);
    form.end()?;
    let rotated = asked.hub().rotate_keys(asked.scope()?, data).await?;
    json(&RotatedKeys { tenants: rotated.tenants, secrets: rotated.secrets, unreadable: rotated.unreadable })
}
