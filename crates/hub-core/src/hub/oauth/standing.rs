//! How it stands with a sign-in, beside what was given: what was asked of whom, whether somebody has to sign in again, and for
//! what more. It is a document of its own, so that it is there after a restart and for every hub; nothing in it is secret.

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
use crate::pin::visible;
use crate::store::{Batch, Change, Key, Kind, Store};
use crate::sync::lock;

/// How many hops are kept, and how much of what each says.
const MOST_HOPS: usize = 50;
const LONGEST: usize = 600;
/// How many scopes are remembered that somebody wants.
const MOST_SCOPES: usize = 100;
/// How often it is tried to keep something while other hubs do the same.
const MOST_TRIES: usize = 20;

/// One hop.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// When it was over.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// What for.
    pub what: String,
    /// Where, without the query.
    pub url: String,
    /// The status of HTTP, if there was an answer.
    pub status: Option<u16>,
    /// Why there was none.
    pub error: Option<String>,
    /// How long it took.
    pub took_ms: u64,
}

impl Hop {
    pub(super) fn new(at: Timestamp, step: &AuthStep<'_>) -> Self {
        let short = |text: &str| visible(text).chars().take(LONGEST).collect::<String>();
        Hop {
            at,
            what: step.purpose.map_or_else(|| "a person signs in".to_owned(), |purpose| purpose.to_string()),
            url: short(step.url),
            status: step.status,
            error: step.error.map(|error| short(&error.to_string())),
            took_ms: u64::try_from(step.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// How it stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Standing {
    /// The last hops, the oldest first.
    pub(super) hops: VecDeque<Hop>,
    /// That somebody has to sign in again.
    pub(super) again: Option<Again>,
    /// The scopes that the server wanted and the grant does not have.
    pub(super) wanted: Vec<String>,
}

/// A grant that is not taken any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Again {
    /// The version of the grant that this is said of.
    pub(super) version: u64,
    pub(super) why: String,
}

impl Standing {
    fn add(&mut self, hops: &[Hop]) {
        self.hops.extend(hops.iter().cloned());
        let over = self.hops.len().saturating_sub(MOST_HOPS);
        self.hops.drain(..over);
    }

    /// Remembers what the server wants. Whether it is news.
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

/// What was heard and is not kept yet.
#[derive(Default)]
pub(super) struct Heard {
    hops: Mutex<HashMap<Whose, Vec<Hop>>>,
    /// Held by whoever keeps something.
    writing: tokio::sync::Mutex<()>,
}

/// Where it is kept how it stands with one sign-in.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) heard: Arc<Heard>,
    pub(super) store: Arc<dyn Store>,
    pub(super) whose: Whose,
    /// The id of the grant.
    pub(super) id: SecretId,
}

impl Place {
    /// Takes in a hop. Whether nobody is about to keep it yet.
    pub(super) fn hear(&self, hop: Hop) -> bool {
        let mut heard = lock(&self.heard.hops);
        let hops = heard.entry(self.whose).or_default();
        hops.push(hop);
        let over = hops.len().saturating_sub(MOST_HOPS);
        hops.drain(..over);
        hops.len() == 1
    }

    /// Keeps what was heard.
    pub(super) async fn keep(&self) {
        if let Err(error) = self.change(|_| true).await {
            tracing::debug!(%error, "hops of a sign-in could not be kept");
        }
    }

    /// How it stands, with everything that was heard.
    pub(super) async fn read(&self) -> Result<Standing> {
        let _turn = self.heard.writing.lock().await;
        let heard = lock(&self.heard.hops).get(&self.whose).cloned().unwrap_or_default();
        let (mut standing, _) = self.kept().await?;
        standing.add(&heard);
        Ok(standing)
    }

    /// Changes how it stands; `change` says whether it did.
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
