//! Servers.

use std::collections::BTreeMap;

use axum::response::Response;
use linchpin_hub_core::hub::{ServerFilter, ServerView};
use linchpin_hub_core::server::{Authentication, CredentialMode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{created, done, json};
use crate::asked::Asked;
use crate::list::cut;
use crate::problem::Result;
use crate::query::Parameter;
use crate::route::API;

pub(crate) const STATUSES: [&str; 5] = ["disconnected", "connecting", "connected", "error", "disabled"];
pub(crate) const FILTERS: [Parameter; 3] = [
    Parameter::flag("enabled", "Those that are used, or not"),
    Parameter::one_of("status", "Filter by status", &STATUSES),
    Parameter::text("q", "Those with this in their name, slug or description"),
];

pub(crate) const SYNC: [Parameter; 1] =
    [Parameter::text("agent", "The id of the agent with whose credential it is done")];

/// Everything that may be said of a server and need not be.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
struct More {
    /// What it is for.
    #[schemars(length(max = 2_000))]
    description: Option<String>,
    /// `http` (the usual) or `sse`.
    transport: Option<String>,
    /// What is sent with every request; at most 32. Nothing here is secret.
    headers: Option<BTreeMap<String, String>>,
    /// How requests say who asks. The secret itself is the server's credential.
    authentication: Option<Authentication>,
    /// Whose credentials are used; `shared` is the usual.
    credentials: Option<CredentialMode>,
    /// How long an answer may take; 30,000 is the usual.
    #[schemars(range(min = 1_000, max = 300_000))]
    timeout_ms: Option<u64>,
    /// How often connecting, listing and reading is tried again; 3 is the usual. Calls never are.
    #[schemars(range(min = 0, max = 5))]
    retry_attempts: Option<u8>,
    /// How many calls a minute it takes; as many as there are without it.
    #[schemars(range(min = 1, max = 100_000))]
    calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once.
    #[schemars(range(min = 1, max = 1_000))]
    calls_at_once: Option<u32>,
    /// Protocol revision of its connections. Default: the newest that both sides support.
    revision: Option<String>,
    /// Whether it is used at all.
    enabled: Option<bool>,
    /// Whether arguments and results of its calls are kept.
    keep_history: Option<bool>,
}

/// A server that is to be added. Programs are added on the machine of the hub alone.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
pub(crate) struct NewServer {
    /// What people call it.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// Where it is.
    #[schemars(length(max = 2_048))]
    url: String,
    /// Its short name, which never changes; made of the name when nothing is said.
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    slug: Option<String>,
    #[serde(flatten)]
    more: More,
}

/// A server that is to be tried, and is not kept.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
pub(crate) struct ServerToTry {
    #[serde(flatten)]
    server: NewServer,
    /// Its credential.
    secret: Option<String>,
}

/// What is to change of a server: only what is given.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: the hub reads it field by field")]
pub(crate) struct ServerChanges {
    /// What people call it.
    #[schemars(length(min = 1, max = 100))]
    name: Option<String>,
    /// Where it is. At another place credentials are dropped.
    #[schemars(length(max = 2_048))]
    url: Option<String>,
    #[serde(flatten)]
    more: More,
}

/// How many tools were not trusted before.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TrustedTools {
    /// How many.
    trusted: usize,
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let filter = ServerFilter {
        enabled: asked.query.flag("enabled"),
        status: asked.query.one("status"),
        q: asked.query.text("q").map(str::to_owned),
    };
    let servers = asked.hub().servers(asked.scope()?, &filter).await?;
    json(&cut(servers, &asked.query.paging(), |server| server.id.to_string()))
}

pub(crate) async fn add(mut asked: Asked) -> Result<Response> {
    let form = asked.body.take();
    let server = asked.hub().add_server(asked.scope()?, form).await?;
    created(&place(&server), &server)
}

fn place(server: &ServerView) -> String {
    format!("{API}/servers/{}", server.id)
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&asked.hub().server(asked.scope()?, asked.path("server")).await?)
}

pub(crate) async fn change(mut asked: Asked) -> Result<Response> {
    let changes = asked.body.take();
    json(&asked.hub().update_server(asked.scope()?, asked.path("server"), changes).await?)
}

pub(crate) async fn remove(asked: Asked) -> Result<Response> {
    asked.hub().remove_server(asked.scope()?, asked.path("server")).await?;
    Ok(done())
}

pub(crate) async fn try_out(mut asked: Asked) -> Result<Response> {
    let form = asked.body.take();
    json(&asked.hub().try_draft(asked.scope()?, form).await?)
}

pub(crate) async fn test(asked: Asked) -> Result<Response> {
    json(&asked.hub().test_server(asked.scope()?, asked.path("server")).await?)
}

pub(crate) async fn connect(asked: Asked) -> Result<Response> {
    json(&asked.hub().connect_server(asked.scope()?, asked.path("server")).await?)
}

pub(crate) async fn disconnect(asked: Asked) -> Result<Response> {
    json(&asked.hub().disconnect_server(asked.scope()?, asked.path("server")).await?)
}

pub(crate) async fn sync(asked: Asked) -> Result<Response> {
    let agent = asked.query.text("agent").map(str::parse).transpose()?;
    json(&asked.hub().sync_server(asked.scope()?, asked.path("server"), agent).await?)
}

pub(crate) async fn enable(asked: Asked) -> Result<Response> {
    json(&asked.hub().enable_server(asked.scope()?, asked.path("server"), true).await?)
}

pub(crate) async fn disable(asked: Asked) -> Result<Response> {
    json(&asked.hub().enable_server(asked.scope()?, asked.path("server"), false).await?)
}

pub(crate) async fn trust(asked: Asked) -> Result<Response> {
    let trusted = asked.hub().trust_server(asked.scope()?, asked.path("server")).await?;
    json(&TrustedTools { trusted })
}
