//! Handlers of the REST API, one file per resource. A handler parses the request, calls one operation of the hub and
//! serializes the result; all rules are in the hub.

pub(crate) mod agents;
pub(crate) mod approval_rules;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod export;
pub(crate) mod keys;
pub(crate) mod resources_prompts;
pub(crate) mod server_requests;
pub(crate) mod servers;
pub(crate) mod sessions;
pub(crate) mod sign_ins;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod users;

use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;

use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::respond_with;
use crate::route::JSON;
use crate::{openapi, routes};

/// Serialized `OpenAPI` document, generated once.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::document(&routes::all_routes()).to_string());

/// Responds with the `OpenAPI` document of the hub.
pub(crate) async fn document(_: ApiRequest) -> Result<Response> {
    Ok(respond_with(StatusCode::OK, JSON, DOCUMENT.as_str()))
}
