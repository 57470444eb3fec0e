//! Call metrics: histograms of call durations by server and status, for monitoring.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::SignedDuration;

use crate::actor::Actor;
use crate::id::TenantId;
use crate::lock::lock;
use crate::store::CallStatus;

/// Upper bounds of the histogram buckets, in milliseconds.
pub const BUCKET_BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000];

/// Maximum number of servers whose calls are counted separately.
const MAX_METERED_SERVERS: usize = 1_000;

/// Duration histogram of the calls of one server with one status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Number of calls in the histogram.
    pub count: u64,
    /// Sum of all recorded durations, in milliseconds.
    pub total_ms: u64,
    /// Calls per bucket of [`BUCKET_BOUNDS_MS`]. A call is in the first bucket whose bound it does not exceed.
    pub buckets: [u64; BUCKET_BOUNDS_MS.len()],
}

impl DurationHistogram {
    /// Counts a call with this duration in the histogram.
    pub fn add(&mut self, millis: u64) {
        self.count += 1;
        self.total_ms += millis;
        if let Some(bucket) = BUCKET_BOUNDS_MS.iter().position(|bound| millis <= *bound) {
            self.buckets[bucket] += 1;
        }
    }
}

/// Duration histograms of finished calls, by tenant, server and status.
#[derive(Default)]
pub struct CallMetrics(Mutex<BTreeMap<(TenantId, String, &'static str), DurationHistogram>>);

impl CallMetrics {
    pub(in crate::hub) fn record_call(
        &self,
        tenant: TenantId,
        server: &str,
        status: CallStatus,
        duration: SignedDuration,
    ) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or_default();
        let mut all = lock(&self.0);
        let key = (tenant, server.to_owned(), status.name());
        if all.len() >= MAX_METERED_SERVERS * CallStatus::ALL.len() && !all.contains_key(&key) {
            return;
        }
        all.entry(key).or_default().add(millis);
    }

    /// Returns the durations of the finished calls of a tenant, by server slug and status.
    pub fn calls(&self, actor: Actor) -> Vec<(String, &'static str, DurationHistogram)> {
        let all = lock(&self.0);
        let calls = all.iter().filter(|((tenant, ..), _)| *tenant == actor.tenant());
        calls.map(|((_, server, status), histogram)| (server.clone(), *status, histogram.clone())).collect()
    }
}
