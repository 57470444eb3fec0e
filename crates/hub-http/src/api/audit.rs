//! Audit.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use linchpin_hub_core::hub::{AuditView, Hub};
use linchpin_hub_core::store::{MOST_ON_PAGE, Page};
use linchpin_hub_core::{Error, Scope};

use crate::chunked_body::{Made, pieces};
use crate::problem::Result;
use crate::query::{PAGING, Parameter};
use crate::request::Asked;
use crate::response::{json, with};

pub(crate) const AFTER: [Parameter; 1] = [PAGING[0]];

/// Returns the position: the number of the last entry of the previous page.
fn after(asked: &Asked) -> Result<u64> {
    let Some(after) = asked.query.text("after") else { return Ok(0) };
    let number = after.parse::<i64>().ok().and_then(|number| number.try_into().ok());
    let wrong =
        || Error::invalid("after", format!("must be the number of an audit entry, 0 to {}", i64::MAX));
    Ok(number.ok_or_else(wrong)?)
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let (after, limit) = (after(&asked)?, asked.query.paging().limit);
    let mut items = asked.hub().audit(asked.scope()?, after, limit + 1).await?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| last.number.to_string());
    json(&Page { items, next })
}

pub(crate) async fn verify(asked: Asked) -> Result<Response> {
    json(&asked.hub().verify_audit(asked.scope()?).await?)
}

/// State of an audit export.
struct Export {
    hub: Arc<Hub>,
    scope: Scope,
    after: u64,
}

pub(crate) async fn export(asked: Asked) -> Result<Response> {
    let export = Export { hub: asked.hub().clone(), scope: asked.scope()?, after: after(&asked)? };
    Ok(with(StatusCode::OK, "application/jsonl", pieces(export, some)))
}

/// Returns the next entries, one per line.
async fn some(mut export: Export) -> Made<Export> {
    let entries = export.hub.audit(export.scope, export.after, MOST_ON_PAGE).await?;
    let Some(last) = entries.last() else { return Ok(None) };
    export.after = last.number;
    let line = |entry: &AuditView| serde_json::to_string(entry).unwrap_or_default() + "\n";
    let lines: String = entries.iter().map(line).collect();
    Ok(Some((Bytes::from(lines), export)))
}
