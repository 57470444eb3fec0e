//! REST endpoint that rotates the root key of the vault and, on request, the tenant keys.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::json;

/// Request body that rotates the root key and, on request, the tenant keys.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct RotateKeys {
    /// Whether to create a new tenant key and re-encrypt all secrets with it, too. Default: false.
    data: Option<bool>,
}

/// Result of a key rotation: how many keys and secrets were re-encrypted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RotatedKeys {
    /// Number of tenant keys re-wrapped with the new root key.
    tenants: usize,
    /// Number of secrets re-encrypted with a new tenant key.
    secrets: usize,
    /// Number of secrets that could not be decrypted and stay unchanged.
    unreadable: usize,
}

pub(crate) async fn rotate(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let data = form.boolean("data")?.unwrap_or(false);
    form.finish()?;
    let rotated = request.hub().rotate_keys(request.actor()?, data).await?;
    json(&RotatedKeys { tenants: rotated.tenants, secrets: rotated.secrets, unreadable: rotated.unreadable })
}
