//! Grant status: trace of OAuth requests, rejection of the grant, and missing scopes. A document of its own, readable
//! by every hub and after a restart. It contains no secrets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use linchpin::auth::AuthStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GrantOwner;
use crate::error::{self, Result};
use crate::hub::{document, upsert};
use crate::id::SecretId;
use crate::lock::lock;
use crate::store::{Batch, DocumentKey, DocumentKind, Store, StoreChange};
use crate::text::escape_invisible;

/// Maximum number of stored trace entries of one grant.
const MAX_TRACE_ENTRIES: usize = 50;
/// Maximum length of each text in a trace entry, in characters.
const MAX_TRACE_TEXT_LEN: usize = 600;
/// Maximum number of missing scopes stored per grant.
const MAX_MISSING_SCOPES: usize = 100;
/// Maximum number of attempts to commit the grant status while other hubs change it.
const MAX_COMMIT_ATTEMPTS: usize = 20;

/// One OAuth request of a sign-in or refresh.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AuthTraceEntry {
    /// Time at which the OAuth request finished.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Purpose of the OAuth request, such as `token request`.
    #[serde(alias = "what")]
    pub purpose: String,
    /// URL of the OAuth request without its query.
    pub url: String,
    /// HTTP status, if a response arrived.
    pub status: Option<u16>,
    /// Error, if no response arrived.
    pub error: Option<String>,
    /// Duration of the request in milliseconds.
    #[serde(alias = "took_ms")]
    pub duration_ms: u64,
}

impl AuthTraceEntry {
    pub(super) fn new(at: Timestamp, step: &AuthStep<'_>) -> Self {
        let short = |text: &str| escape_invisible(text).chars().take(MAX_TRACE_TEXT_LEN).collect::<String>();
        AuthTraceEntry {
            at,
            purpose: step.purpose.map_or_else(
                || "sign-in of the user in the browser".to_owned(),
                |purpose| purpose.to_string(),
            ),
            url: short(step.url),
            status: step.status,
            error: step.error.map(|error| short(&error.to_string())),
            duration_ms: u64::try_from(step.duration.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Status of an OAuth grant as stored: its recent OAuth requests, why it was rejected, and the scopes that it lacks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct GrantStatus {
    /// Recent OAuth requests for this grant, oldest first, for troubleshooting.
    #[serde(rename = "hops")]
    pub(super) trace: VecDeque<AuthTraceEntry>,
    /// Reason why the grant was rejected, if a user has to sign in again.
    #[serde(rename = "again")]
    pub(super) reauthorization: Option<ReauthorizationRequired>,
    /// Scopes that the server requires and the grant lacks.
    #[serde(rename = "wanted")]
    pub(super) missing_scopes: Vec<String>,
}

/// Rejection of a grant: a user has to sign in again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReauthorizationRequired {
    /// Version of the rejected grant.
    pub(super) version: u64,
    #[serde(rename = "why")]
    pub(super) reason: String,
}

impl GrantStatus {
    fn append_trace(&mut self, trace: &[AuthTraceEntry]) {
        self.trace.extend(trace.iter().cloned());
        let excess = self.trace.len().saturating_sub(MAX_TRACE_ENTRIES);
        self.trace.drain(..excess);
    }

    /// Adds scopes that the server requires to the missing scopes of the grant. Returns whether any was new.
    pub(super) fn add_missing_scopes<'a>(&mut self, scopes: impl Iterator<Item = &'a str>) -> bool {
        let before = self.missing_scopes.len();
        for scope in scopes {
            if self.missing_scopes.len() < MAX_MISSING_SCOPES
                && !self.missing_scopes.iter().any(|missing| missing == scope)
            {
                self.missing_scopes.push(scope.to_owned());
            }
        }
        self.missing_scopes.len() > before
    }
}

/// OAuth trace entries that are not stored yet, by grant.
#[derive(Default)]
pub(super) struct TraceBuffer {
    entries: Mutex<HashMap<GrantOwner, Vec<AuthTraceEntry>>>,
    /// Lock that serializes the writes of grant statuses.
    write_lock: tokio::sync::Mutex<()>,
}

/// Reader and writer of the stored status of one OAuth grant.
#[derive(Clone)]
pub(super) struct GrantStatusStore {
    pub(super) buffer: Arc<TraceBuffer>,
    pub(super) store: Arc<dyn Store>,
    pub(super) owner: GrantOwner,
    /// Id of the OAuth grant whose status is stored.
    pub(super) id: SecretId,
}

impl GrantStatusStore {
    /// Buffers an entry of the HTTP trace until it is stored with the grant status. Returns `true` if the buffer was
    /// empty, so that the caller must schedule a flush.
    pub(super) fn buffer_entry(&self, entry: AuthTraceEntry) -> bool {
        let mut buffer = lock(&self.buffer.entries);
        let trace = buffer.entry(self.owner).or_default();
        trace.push(entry);
        let excess = trace.len().saturating_sub(MAX_TRACE_ENTRIES);
        trace.drain(..excess);
        trace.len() == 1
    }

    /// Stores the buffered OAuth trace entries in the grant status.
    pub(super) async fn flush(&self) {
        if let Err(error) = self.update(|_| true).await {
            tracing::debug!(%error, "failed to store the OAuth trace");
        }
    }

    /// Reads the status of the grant, including buffered trace entries.
    pub(super) async fn read(&self) -> Result<GrantStatus> {
        let _guard = self.buffer.write_lock.lock().await;
        let buffered = lock(&self.buffer.entries).get(&self.owner).cloned().unwrap_or_default();
        let (mut status, _) = self.load().await?;
        status.append_trace(&buffered);
        Ok(status)
    }

    /// Changes the stored status; `change` returns whether it changed anything.
    pub(super) async fn update(&self, change: impl Fn(&mut GrantStatus) -> bool) -> Result<()> {
        let GrantOwner { tenant, server, .. } = self.owner;
        let _guard = self.buffer.write_lock.lock().await;
        let buffered = lock(&self.buffer.entries).remove(&self.owner).unwrap_or_default();
        for count in 1.. {
            let (mut status, version) = self.load().await?;
            status.append_trace(&buffered);
            if !change(&mut status) && buffered.is_empty() {
                break;
            }
            let document = document(DocumentKind::Trace, self.id, &status)?.with_parent(server);
            let require_server = StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, server));
            match self
                .store
                .commit(tenant, Batch::new().change(require_server).change(upsert(document, version)))
                .await
            {
                Err(error) if error.kind() == error::ErrorKind::Conflict && count < MAX_COMMIT_ATTEMPTS => {} // another hub
                Err(error) if error.kind() == error::ErrorKind::NotFound => break, // the server was removed
                done => return done,
            }
        }
        Ok(())
    }

    async fn load(&self) -> Result<(GrantStatus, u64)> {
        let found =
            self.store.document(self.owner.tenant, &DocumentKey::new(DocumentKind::Trace, self.id)).await?;
        found.map_or_else(
            || Ok(Default::default()),
            |stored| Ok((stored.document.parse_body()?, stored.version)),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_that_was_stored_under_the_former_names_is_read() {
        let stored = json!({
            "hops": [{
                "at": "2026-11-16T22:18:21Z", "what": "token request", "url": "https://as.example/token",
                "status": 200, "error": null, "took_ms": 12,
            }],
            "again": { "version": 3, "why": "revoked" },
            "wanted": ["write"],
        });
        let status: GrantStatus = serde_json::from_value(stored.clone()).unwrap();
        let entry = &status.trace[0];
        assert_eq!((&*entry.purpose, entry.status, entry.duration_ms), ("token request", Some(200), 12));
        let rejection = ReauthorizationRequired { version: 3, reason: "revoked".into() };
        assert_eq!(
            (&status.reauthorization, &*status.missing_scopes),
            (&Some(rejection), &["write".into()][..])
        );

        let mut written = serde_json::to_value(&status).unwrap();
        assert_eq!(written["hops"][0]["purpose"], "token request");
        assert_eq!(written["hops"][0]["duration_ms"], 12);
        // All other names are as they were stored.
        written["hops"] = stored["hops"].clone();
        assert_eq!(written, stored);
    }
}
