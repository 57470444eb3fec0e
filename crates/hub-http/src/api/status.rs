//! What is running, how it is, and what is counted.

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use linchpin_hub_core::connection;
use linchpin_hub_core::hub::ServerFilter;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{json, with};
use crate::asked::Asked;
use crate::metrics::Text;
use crate::problem::Result;

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is running.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HubStatus")]
pub(crate) struct Status {
    /// The version of the hub.
    pub(crate) version: &'static str,
    /// When it was started.
    #[schemars(with = "String")]
    pub(crate) started: Timestamp,
    /// How many servers there are.
    pub(crate) servers: usize,
    /// How many of them are connected.
    pub(crate) connected: usize,
    /// How many tools they have.
    pub(crate) tools: usize,
    /// How many questions wait for a person.
    pub(crate) pending_approvals: usize,
    /// How many entries the audit has.
    pub(crate) audit_entries: u64,
    /// Why not all that the operator's file says is in force, if that is so.
    pub(crate) file_problem: Option<String>,
}

/// Looks at what is running.
pub(crate) async fn look(asked: &Asked) -> Result<Status> {
    let (hub, scope) = (asked.hub(), asked.scope()?);
    let servers = hub.servers(scope, &ServerFilter::default()).await?;
    let is_connected = |status| status == connection::Status::Connected;
    Ok(Status {
        version: env!("CARGO_PKG_VERSION"),
        started: asked.app.begun,
        servers: servers.len(),
        connected: servers.iter().filter(|server| is_connected(server.status)).count(),
        tools: servers.iter().map(|server| server.tools).sum(),
        pending_approvals: hub.pending_approvals(scope).await?,
        audit_entries: hub.audit_entries(scope).await?,
        file_problem: asked.app.file_problem(),
    })
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    json(&look(&asked).await?)
}

/// Whether the process lives.
pub(crate) async fn healthy(_: Asked) -> Result<Response> {
    Ok(with(StatusCode::OK, TEXT, "ok\n"))
}

/// Whether it can do what it is asked.
pub(crate) async fn ready(asked: Asked) -> Result<Response> {
    match asked.hub().check().await {
        // What exactly is not for whoever comes.
        Ok(()) if asked.app.file_problem().is_some() => {
            let text = "ok, but not all that the operator's file says is in force: the log says why\n";
            Ok(with(StatusCode::OK, TEXT, text))
        }
        Ok(()) => Ok(with(StatusCode::OK, TEXT, "ok\n")),
        Err(error) => {
            tracing::warn!(%error, "the hub is not ready");
            Ok(with(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the store does not answer\n"))
        }
    }
}

pub(crate) async fn metrics(asked: Asked) -> Result<Response> {
    let (status, mut text) = (look(&asked).await?, Text::default());
    asked.app.metrics.write(&mut text);
    for (name, help, value) in [
        ("linchpin_servers", "Servers that are known.", status.servers as u64),
        ("linchpin_servers_connected", "Servers that are connected.", status.connected as u64),
        ("linchpin_tools", "Tools that are known.", status.tools as u64),
        ("linchpin_approvals_pending", "Questions that wait for a person.", status.pending_approvals as u64),
        ("linchpin_audit_head", "The number of the last entry of the audit.", status.audit_entries),
    ] {
        text.head(name, "gauge", help);
        text.line(name, &[], value);
    }
    let calls = asked.hub().meters().calls(asked.scope()?);
    text.head("linchpin_calls_total", "counter", "Calls that are over, by server and how they ended.");
    for (server, status, ended) in &calls {
        text.line("linchpin_calls_total", &[("server", server), ("status", status)], ended.count);
    }
    text.head("linchpin_call_duration_seconds", "histogram", "How long calls took.");
    for (server, status, ended) in &calls {
        let labels = [("server", &**server), ("status", status)];
        text.histogram("linchpin_call_duration_seconds", &labels, ended);
    }
    Ok(with(StatusCode::OK, PROMETHEUS, text.end()))
}
