//! Grant status: trace of OAuth requests, rejection of the grant, and missing scopes. A document of its own, readable
//! by every hub and after a restart. It contains no secrets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use linchpin::auth::AuthStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Whose;
use crate::error::{self, Result};
use crate::hub::{document, put};
use crate::id::SecretId;
use crate::lock::lock;
use crate::store::{Batch, Change, Key, Kind, Store};
use crate::tool::pin::visible;

/// Trace entries per grant, and characters of each text in them.
const MOST_HOPS: usize = 50;
const LONGEST: usize = 600;
/// Missing scopes stored per grant.
const MOST_SCOPES: usize = 100;
/// Commit attempts while other hubs change the same document.
const MOST_TRIES: usize = 20;

/// One OAuth request of a sign-in or refresh.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// Time at which the request finished.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Purpose of the request.
    pub what: String,
    /// URL without the query.
    pub url: String,
    /// HTTP status, if a response arrived.
    pub status: Option<u16>,
    /// Error, if no response arrived.
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

impl Hop {
    pub(super) fn new(at: Timestamp, step: &AuthStep<'_>) -> Self {
        let short = |text: &str| visible(text).chars().take(LONGEST).collect::<String>();
        Hop {
            at,
            what: step.purpose.map_or_else(|| "user signs in".to_owned(), |purpose| purpose.to_string()),
            url: short(step.url),
            status: step.status,
            error: step.error.map(|error| short(&error.to_string())),
            took_ms: u64::try_from(step.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Stored grant status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Standing {
    /// Recent trace entries, oldest first.
    pub(super) hops: VecDeque<Hop>,
    /// Rejection of the grant: a user has to sign in again.
    pub(super) again: Option<Again>,
    /// Scopes that the server requires and the grant lacks.
    pub(super) wanted: Vec<String>,
}

/// Rejected grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Again {
    /// Version of the rejected grant.
    pub(super) version: u64,
    pub(super) why: String,
}

impl Standing {
    fn add(&mut self, hops: &[Hop]) {
        self.hops.extend(hops.iter().cloned());
        let over = self.hops.len().saturating_sub(MOST_HOPS);
        self.hops.drain(..over);
    }

    /// Adds scopes that the server requires. Returns whether any was new.
    pub(super) fn want<'a>(&mut self, scopes: impl Iterator<Item = &'a str>) -> bool {
        let before = self.wanted.len();
        for scope in scopes {
            if self.wanted.len() < MOST_SCOPES && !self.wanted.iter().any(|known| known == scope) {
                self.wanted.push(scope.to_owned());
            }
        }
        self.wanted.len() > before
    }
}

/// Trace entries that are not stored yet.
#[derive(Default)]
pub(super) struct Heard {
    hops: Mutex<HashMap<Whose, Vec<Hop>>>,
    /// Serializes the writes of grant statuses.
    writing: tokio::sync::Mutex<()>,
}

/// Access to the stored status of one grant.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) heard: Arc<Heard>,
    pub(super) store: Arc<dyn Store>,
    pub(super) whose: Whose,
    /// Id of the grant.
    pub(super) id: SecretId,
}

impl Place {
    /// Buffers a trace entry. Returns `true` if the buffer was empty, so that the caller must schedule a flush.
    pub(super) fn hear(&self, hop: Hop) -> bool {
        let mut heard = lock(&self.heard.hops);
        let hops = heard.entry(self.whose).or_default();
        hops.push(hop);
        let over = hops.len().saturating_sub(MOST_HOPS);
        hops.drain(..over);
        hops.len() == 1
    }

    /// Stores the buffered trace entries.
    pub(super) async fn keep(&self) {
        if let Err(error) = self.change(|_| true).await {
            tracing::debug!(%error, "failed to store the OAuth trace");
        }
    }

    /// Reads the status, including buffered trace entries.
    pub(super) async fn read(&self) -> Result<Standing> {
        let _turn = self.heard.writing.lock().await;
        let heard = lock(&self.heard.hops).get(&self.whose).cloned().unwrap_or_default();
        let (mut standing, _) = self.kept().await?;
        standing.add(&heard);
        Ok(standing)
    }

    /// Changes the stored status; `change` returns whether it changed anything.
    pub(super) async fn change(&self, change: impl Fn(&mut Standing) -> bool) -> Result<()> {
        let (tenant, server, _) = self.whose;
        let _turn = self.heard.writing.lock().await;
        let heard = lock(&self.heard.hops).remove(&self.whose).unwrap_or_default();
        for tried in 1.. {
            let (mut standing, version) = self.kept().await?;
            standing.add(&heard);
            if !change(&mut standing) && heard.is_empty() {
                break;
            }
            let document = document(Kind::Trace, self.id, &standing)?.of(server);
            let is_there = Change::Need(Key::new(Kind::Server, server));
            match self
                .store
                .commit(tenant, Batch::new().change(is_there).change(put(document, version)))
                .await
            {
                Err(error) if error.kind() == error::Kind::Conflict && tried < MOST_TRIES => {} // another hub
                Err(error) if error.kind() == error::Kind::NotFound => break, // the server was removed
                done => return done,
            }
        }
        Ok(())
    }

    async fn kept(&self) -> Result<(Standing, u64)> {
        let found = self.store.document(self.whose.0, &Key::new(Kind::Trace, self.id)).await?;
        found.map_or_else(|| Ok(Default::default()), |stored| Ok((stored.document.read()?, stored.version)))
    }
}
