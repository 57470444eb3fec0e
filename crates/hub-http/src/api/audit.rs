//! REST endpoints of the audit: list, verify and export.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use linchpin_hub_core::hub::{AuditQuery, AuditView, Hub};
use linchpin_hub_core::store::MAX_PAGE_SIZE;
use linchpin_hub_core::{Actor, Error};

use crate::chunked_body::{Chunk, chunked};
use crate::problem::Result;
use crate::query::{PAGING, Parameter};
use crate::request::ApiRequest;
use crate::response::{json, respond_with};

pub(crate) const POSITION_PARAMETER: [Parameter; 1] = [PAGING[0]];
pub(crate) const FILTERS: [Parameter; 4] = [
    Parameter::text(
        "actor",
        "Return only entries of this actor: name of a user or agent, user:ID, agent:ID or hub",
    ),
    Parameter::text(
        "action",
        "Return only entries with this action, or of a group of actions such as `call.`",
    ),
    Parameter::time("since", "Return only entries at or after this time"),
    Parameter::time("until", "Return only entries before this time"),
];

/// Returns the audit position of a page request: the number of the last entry of the previous page.
fn position(request: &ApiRequest) -> Result<u64> {
    let Some(after) = request.query.text("after") else { return Ok(0) };
    let number = after.parse::<i64>().ok().and_then(|number| number.try_into().ok());
    let invalid_position =
        || Error::invalid("after", format!("must be the number of an audit entry, 0 to {}", i64::MAX));
    Ok(number.ok_or_else(invalid_position)?)
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let (after, limit) = (position(&request)?, request.query.paging().limit);
    let query = AuditQuery {
        actor: request.query.text("actor").map(str::to_owned),
        action: request.query.text("action").map(str::to_owned),
        since: request.query.time("since"),
        until: request.query.time("until"),
    };
    json(&request.hub().audit().find(request.actor()?, query, after, limit).await?)
}

pub(crate) async fn verify(request: ApiRequest) -> Result<Response> {
    json(&request.hub().audit().verify(request.actor()?).await?)
}

/// State of an audit export between two chunks: the last exported entry.
struct ExportState {
    hub: Arc<Hub>,
    actor: Actor,
    after: u64,
}

pub(crate) async fn export(request: ApiRequest) -> Result<Response> {
    let export =
        ExportState { hub: request.hub().clone(), actor: request.actor()?, after: position(&request)? };
    Ok(respond_with(StatusCode::OK, "application/jsonl", chunked(export, next_chunk)))
}

/// Returns the next part of an audit export: entries as JSON, one per line.
async fn next_chunk(mut export: ExportState) -> Chunk<ExportState> {
    let entries = export.hub.audit().entries(export.actor, export.after, MAX_PAGE_SIZE).await?;
    let Some(last) = entries.last() else { return Ok(None) };
    export.after = last.number;
    let line = |entry: &AuditView| serde_json::to_string(entry).unwrap_or_default() + "\n";
    let lines: String = entries.iter().map(line).collect();
    Ok(Some((Bytes::from(lines), export)))
}
