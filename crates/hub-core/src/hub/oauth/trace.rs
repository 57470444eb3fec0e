//! What was asked of whom while somebody signed in, or a token was renewed: the last hops, with nothing secret in them.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use jiff::Timestamp;
use linchpin::auth::AuthStep;
use schemars::JsonSchema;
use serde::Serialize;

use super::Whose;
use crate::pin::visible;
use crate::sync::lock;

/// How many hops are kept of each, and of how many.
const MOST_HOPS: usize = 100;
const MOST: usize = 1_000;

/// One hop.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
        Hop {
            at,
            what: step.purpose.map_or_else(|| "a person signs in".to_owned(), |purpose| purpose.to_string()),
            url: visible(step.url),
            status: step.status,
            error: step.error.map(|error| visible(&error.to_string())),
            took_ms: u64::try_from(step.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[derive(Default)]
pub(super) struct Traces(Mutex<HashMap<Whose, VecDeque<Hop>>>);

impl Traces {
    pub(super) fn add(&self, whose: Whose, hop: Hop) {
        let mut traces = lock(&self.0);
        if traces.len() >= MOST && !traces.contains_key(&whose) {
            traces.clear();
        }
        let hops = traces.entry(whose).or_default();
        if hops.len() >= MOST_HOPS {
            hops.pop_front();
        }
        hops.push_back(hop);
    }

    pub(super) fn of(&self, whose: Whose) -> Vec<Hop> {
        lock(&self.0).get(&whose).map(|hops| hops.iter().cloned().collect()).unwrap_or_default()
    }
}
