//! REST endpoints of the audit: list, verify and export.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use linchpin_hub_core::hub::{AuditQuery, AuditView, Hub};
use linchpin_hub_core::store::MAX_PAGE_SIZE;
use linchpin_hub_core::{Actor, Error, ErrorKind};

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

/// State of an audit export between two chunks.
struct ExportState {
    hub: Arc<Hub>,
    actor: Actor,
    /// First exported entry; `None` before the first chunk.
    first: Option<u64>,
    /// Last exported entry.
    after: u64,
    /// Whether the signed last line was sent.
    is_signed: bool,
}

pub(crate) async fn export(request: ApiRequest) -> Result<Response> {
    let (hub, actor, after) = (request.hub().clone(), request.actor()?, position(&request)?);
    let export = ExportState { hub, actor, first: None, after, is_signed: false };
    Ok(respond_with(StatusCode::OK, "application/jsonl", chunked(export, next_chunk)))
}

/// Returns the next part of an audit export: entries as JSON, one per line, then the signed last line.
async fn next_chunk(mut export: ExportState) -> Chunk<ExportState> {
    if export.is_signed {
        return Ok(None);
    }
    let entries = export.hub.audit().entries(export.actor, export.after, MAX_PAGE_SIZE).await?;
    let Some(last) = entries.last() else {
        let Some(first) = export.first else { return Ok(None) };
        let footer = export.hub.audit().export_footer(export.actor, first, export.after).await?;
        export.is_signed = true;
        let line = serde_json::to_string(&footer).unwrap_or_default() + "\n";
        return Ok(Some((Bytes::from(line), export)));
    };
    if export.first.is_some() && entries[0].number != export.after + 1 {
        let text = "entries were archived during the export: export them again";
        return Err(Error::new(ErrorKind::Conflict, "audit_archived", text));
    }
    export.first.get_or_insert(entries[0].number);
    export.after = last.number;
    let line = |entry: &AuditView| serde_json::to_string(entry).unwrap_or_default() + "\n";
    let lines: String = entries.iter().map(line).collect();
    Ok(Some((Bytes::from(lines), export)))
}
