//! Call metrics: counters and histograms for monitoring.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::SignedDuration;

use crate::actor::Scope;
use crate::id::TenantId;
use crate::lock::lock;
use crate::store::Status;

/// Upper bounds of the histogram buckets, in milliseconds.
pub const BOUNDS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000];

/// Servers counted separately.
const MOST_SERVERS: usize = 1_000;

/// Duration histogram of the calls of one server with one status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Number of calls.
    pub count: u64,
    /// Total duration in milliseconds.
    pub millis: u64,
    /// Calls per bucket of [`BOUNDS`]. A call is in the first bucket whose bound it does not exceed.
    pub within: [u64; BOUNDS.len()],
}

impl Ended {
    /// Adds a call with this duration.
    pub fn add(&mut self, millis: u64) {
        self.count += 1;
        self.millis += millis;
        if let Some(within) = BOUNDS.iter().position(|bound| millis <= *bound) {
            self.within[within] += 1;
        }
    }
}

/// Histograms by tenant, server and status.
#[derive(Default)]
pub struct Meters(Mutex<BTreeMap<(TenantId, String, &'static str), Ended>>);

impl Meters {
    pub(super) fn call_over(&self, tenant: TenantId, server: &str, status: Status, took: SignedDuration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or_default();
        let mut all = lock(&self.0);
        let key = (tenant, server.to_owned(), status.name());
        if all.len() >= MOST_SERVERS * Status::ALL.len() && !all.contains_key(&key) {
            return;
        }
        all.entry(key).or_default().add(millis);
    }

    /// Returns the finished calls of a tenant, by server slug and status.
    pub fn calls(&self, scope: Scope) -> Vec<(String, &'static str, Ended)> {
        let all = lock(&self.0);
        let own = all.iter().filter(|((tenant, ..), _)| *tenant == scope.tenant());
        own.map(|((_, server, status), ended)| (server.clone(), *status, ended.clone())).collect()
    }
}
