//! REST endpoints of servers: list, add, update, remove, test, connect, sync and trust.

use std::collections::BTreeMap;

use axum::response::Response;
use linchpin_hub_core::hub::{ServerFilter, ServerView};
use linchpin_hub_core::server::{Authentication, ConnectionLimits, CredentialMode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::paging::page_by_key;
use crate::problem::Result;
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{created, json, no_content};
use crate::route::API;

pub(crate) const STATUSES: [&str; 5] = ["disconnected", "connecting", "connected", "error", "disabled"];
pub(crate) const FILTERS: [Parameter; 3] = [
    Parameter::flag("enabled", "Return only enabled (true) or only disabled (false) servers"),
    Parameter::one_of("status", "Return only servers with this connection status", &STATUSES),
    Parameter::text("q", "Return only servers whose name, slug or description contains this text"),
];

pub(crate) const SYNC: [Parameter; 1] =
    [Parameter::text("agent", "Id of the agent whose credential the hub uses for the sync")];

/// Optional fields of a request body that adds or changes a server.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
struct ServerFields {
    /// Description.
    #[schemars(length(max = 2_000))]
    description: Option<String>,
    /// Transport to the server: `http` or `sse`. Default: `http`.
    transport: Option<String>,
    /// Headers sent with every request; at most 32. Must not contain secrets.
    headers: Option<BTreeMap<String, String>>,
    /// How requests to the server are authenticated. The secret is stored separately, as the credential of the server.
    authentication: Option<Authentication>,
    /// Credential mode: one credential for all callers, or one per agent. Default: `shared`.
    credentials: Option<CredentialMode>,
    /// Timeout of requests to the server, in milliseconds. Default: 30,000.
    #[schemars(range(min = 1_000, max = 300_000))]
    timeout_ms: Option<u64>,
    /// Number of retries for connecting, listing and reading. Default: 3. Calls are never retried.
    #[schemars(range(min = 0, max = 5))]
    retry_attempts: Option<u8>,
    /// Rate limit in calls per minute. Default: no limit.
    #[schemars(range(min = 1, max = 100_000))]
    calls_per_minute: Option<u32>,
    /// Maximum number of concurrent calls. Default: no limit.
    #[schemars(range(min = 1, max = 1_000))]
    max_concurrent_calls: Option<u32>,
    /// Protocol revision of the connections to the server. Default: the newest that both sides support.
    revision: Option<String>,
    #[serde(flatten)]
    limits: ConnectionLimits,
    /// Whether the server is enabled. Default: true.
    enabled: Option<bool>,
    /// Whether arguments and results of the server's calls remain stored after the calls have finished. Default: true.
    keep_history: Option<bool>,
}

/// Request body that adds a remote server. Stdio servers can only be added on the machine of the hub.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct NewServer {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// URL of the server.
    #[schemars(length(max = 2_048))]
    url: String,
    /// Slug of the new server, which cannot be changed later. Default: derived from the name.
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    slug: Option<String>,
    #[serde(flatten)]
    fields: ServerFields,
}

/// Request body that tests a server configuration without saving it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct TestServerRequest {
    #[serde(flatten)]
    server: NewServer,
    /// Credential with which the server is tested.
    secret: Option<String>,
}

/// Request body that changes a server. Omitted fields stay unchanged.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: the hub reads it field by field")]
pub(crate) struct ServerChanges {
    /// Display name.
    #[schemars(length(min = 1, max = 100))]
    name: Option<String>,
    /// URL of the server. Credentials are deleted if its origin changes.
    #[schemars(length(max = 2_048))]
    url: Option<String>,
    #[serde(flatten)]
    fields: ServerFields,
}

/// Result of trusting all new tools of a server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TrustedTools {
    /// Number of tools that became trusted by this request.
    trusted: usize,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let filter = ServerFilter {
        enabled: request.query.flag("enabled"),
        status: request.query.parsed("status"),
        q: request.query.text("q").map(str::to_owned),
    };
    let servers = request.hub().registry().servers(request.actor()?, &filter).await?;
    json(&page_by_key(servers, &request.query.paging(), |server| server.id.to_string()))
}

pub(crate) async fn add(mut request: ApiRequest) -> Result<Response> {
    let form = request.body.take();
    let server = request.hub().registry().add_server(request.actor()?, form).await?;
    created(&server_path(&server), &server)
}

fn server_path(server: &ServerView) -> String {
    format!("{API}/servers/{}", server.id)
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().server(request.actor()?, request.path("server")).await?)
}

pub(crate) async fn update(mut request: ApiRequest) -> Result<Response> {
    let changes = request.body.take();
    json(&request.hub().registry().update_server(request.actor()?, request.path("server"), changes).await?)
}

pub(crate) async fn remove(request: ApiRequest) -> Result<Response> {
    request.hub().registry().remove_server(request.actor()?, request.path("server")).await?;
    Ok(no_content())
}

pub(crate) async fn test_draft(mut request: ApiRequest) -> Result<Response> {
    let form = request.body.take();
    json(&request.hub().upstream().test_draft(request.actor()?, form).await?)
}

pub(crate) async fn test(request: ApiRequest) -> Result<Response> {
    json(&request.hub().upstream().test_server(request.actor()?, request.path("server")).await?)
}

pub(crate) async fn connect(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().connect_server(request.actor()?, request.path("server")).await?)
}

pub(crate) async fn disconnect(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().disconnect_server(request.actor()?, request.path("server")).await?)
}

pub(crate) async fn sync(request: ApiRequest) -> Result<Response> {
    let agent = request.query.text("agent").map(str::parse).transpose()?;
    json(&request.hub().registry().sync_server(request.actor()?, request.path("server"), agent).await?)
}

pub(crate) async fn enable(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().enable_server(request.actor()?, request.path("server"), true).await?)
}

pub(crate) async fn disable(request: ApiRequest) -> Result<Response> {
    json(&request.hub().registry().enable_server(request.actor()?, request.path("server"), false).await?)
}

pub(crate) async fn trust(request: ApiRequest) -> Result<Response> {
    let trusted = request.hub().registry().trust_server(request.actor()?, request.path("server")).await?;
    json(&TrustedTools { trusted })
}
