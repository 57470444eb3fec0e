//! REST endpoints of the hub's status, health and metrics.

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use linchpin_hub_core::connection;
use linchpin_hub_core::hub::ServerFilter;
use schemars::JsonSchema;
use serde::Serialize;

use crate::metrics::PrometheusText;
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::{json, respond_with};

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Status of the hub as returned by REST: version, start time and counts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HubStatus")]
pub(crate) struct HubStatus {
    /// Version of the hub.
    pub(crate) version: &'static str,
    /// Start time of the hub.
    #[schemars(with = "String")]
    pub(crate) started: Timestamp,
    /// Number of servers.
    pub(crate) servers: usize,
    /// Number of connected servers.
    pub(crate) connected: usize,
    /// Number of tools.
    pub(crate) tools: usize,
    /// Number of pending approvals.
    pub(crate) pending_approvals: usize,
    /// Number of audit entries.
    pub(crate) audit_entries: u64,
    /// Problem of the configuration file, if parts of the file are not applied.
    pub(crate) file_problem: Option<String>,
}

/// Collects the status of the hub.
pub(crate) async fn collect(request: &ApiRequest) -> Result<HubStatus> {
    let (hub, actor) = (request.hub(), request.actor()?);
    let servers = hub.registry().servers(actor, &ServerFilter::default()).await?;
    let is_connected = |status| status == connection::ConnectionStatus::Connected;
    Ok(HubStatus {
        version: env!("CARGO_PKG_VERSION"),
        started: request.app.started,
        servers: servers.len(),
        connected: servers.iter().filter(|server| is_connected(server.status)).count(),
        tools: servers.iter().map(|server| server.tools).sum(),
        pending_approvals: hub.calls().pending_approvals(actor).await?,
        audit_entries: hub.audit().entry_count(actor).await?,
        file_problem: request.app.file_problem(),
    })
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    json(&collect(&request).await?)
}

/// Responds that the hub is alive, for monitoring.
pub(crate) async fn healthy(_: ApiRequest) -> Result<Response> {
    Ok(respond_with(StatusCode::OK, PLAIN_TEXT, "ok\n"))
}

/// Handles the readiness check: the store must respond.
pub(crate) async fn ready(request: ApiRequest) -> Result<Response> {
    match request.hub().check().await {
        // The route is public, so the response does not contain the details.
        Ok(()) if request.app.file_problem().is_some() => {
            let text = "ok, but parts of the configuration file are not applied: see the log\n";
            Ok(respond_with(StatusCode::OK, PLAIN_TEXT, text))
        }
        Ok(()) => Ok(respond_with(StatusCode::OK, PLAIN_TEXT, "ok\n")),
        Err(error) => {
            tracing::warn!(%error, "readiness check failed");
            Ok(respond_with(StatusCode::SERVICE_UNAVAILABLE, PLAIN_TEXT, "the store does not respond\n"))
        }
    }
}

pub(crate) async fn metrics(request: ApiRequest) -> Result<Response> {
    let (status, mut text) = (collect(&request).await?, PrometheusText::default());
    request.app.metrics.write(&mut text);
    for (name, help, value) in [
        ("linchpin_servers", "Number of servers.", status.servers as u64),
        ("linchpin_servers_connected", "Number of connected servers.", status.connected as u64),
        ("linchpin_tools", "Number of tools.", status.tools as u64),
        ("linchpin_approvals_pending", "Number of pending approvals.", status.pending_approvals as u64),
        ("linchpin_audit_head", "Number of the last audit entry.", status.audit_entries),
    ] {
        text.header(name, "gauge", help);
        text.sample(name, &[], value);
    }
    let calls = request.hub().calls().metrics().calls(request.actor()?);
    text.header("linchpin_calls_total", "counter", "Finished calls by server and status.");
    for (server, status, histogram) in &calls {
        text.sample("linchpin_calls_total", &[("server", server), ("status", status)], histogram.count);
    }
    text.header("linchpin_call_duration_seconds", "histogram", "Duration of calls in seconds.");
    for (server, status, histogram) in &calls {
        let labels = [("server", &**server), ("status", status)];
        text.histogram("linchpin_call_duration_seconds", &labels, histogram);
    }
    Ok(respond_with(StatusCode::OK, PROMETHEUS, text.into_string()))
}
