//! What is counted, for whoever watches the hub by numbers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::SignedDuration;

use crate::id::TenantId;
use crate::scope::Scope;
use crate::store::Status;
use crate::sync::lock;

/// The upper bounds of the times that are told apart, in milliseconds.
pub const BOUNDS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000];

/// How many servers are told apart.
const MOST_SERVERS: usize = 1_000;

/// The calls of a server that ended in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many.
    pub count: u64,
    /// How long they took together, in milliseconds.
    pub millis: u64,
    /// How many took as long as each of [`BOUNDS`] at most, and not as long as the one before.
    pub within: [u64; BOUNDS.len()],
}

impl Ended {
    /// One more, which took so long.
    pub fn add(&mut self, millis: u64) {
        self.count += 1;
        self.millis += millis;
        if let Some(within) = BOUNDS.iter().position(|bound| millis <= *bound) {
            self.within[within] += 1;
        }
    }
}

/// Everything that is counted.
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

    /// The calls of a tenant that ended, by the short name of the server and how they ended.
    pub fn calls(&self, scope: Scope) -> Vec<(String, &'static str, Ended)> {
        let all = lock(&self.0);
        let own = all.iter().filter(|((tenant, ..), _)| *tenant == scope.tenant());
        own.map(|((_, server, status), ended)| (server.clone(), *status, ended.clone())).collect()
    }
}
