//! What the way out has denied, for the audit: the first of its kind at once, and then once a minute how often it came again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use linchpin::egress::Denied;

use super::Hub;
use crate::audit::Entry;
use crate::connection::OnDenied;
use crate::id::{ServerId, TenantId};
use crate::scope::Scope;
use crate::store::{Batch, Store};
use crate::sync::lock;
use crate::tasks::Tasks;
use crate::world::World;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Kinds of one tenant that are told apart; all others are one.
const MOST: usize = 100;
const LONGEST_REASON: usize = 300;

/// One kind: whatever differs is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Refused {
    /// Whose, and on the way to which server; nobody's in particular where there are too many.
    whose: Option<(Scope, ServerId)>,
    tenant: TenantId,
    host: String,
    address: Option<String>,
    reason: String,
}

impl Refused {
    fn others(tenant: TenantId) -> Self {
        let reason = "more was denied than is told one by one".to_owned();
        Refused { whose: None, tenant, host: String::new(), address: None, reason }
    }

    fn entry(&self, at: Timestamp, count: u64) -> Entry {
        let actor = self.whose.map_or_else(|| "hub".to_owned(), |(scope, _)| scope.subject().to_string());
        let mut entry = Entry::new(at, &actor, "egress.denied").with("reason", &*self.reason);
        if let Some((_, server)) = self.whose {
            entry = entry.with("server", server.to_string()).with("host", &*self.host);
        }
        if let Some(address) = &self.address {
            entry = entry.with("address", &**address);
        }
        entry.with("count", count)
    }
}

struct Count {
    told: Timestamp,
    more: u64,
}

/// What was denied a moment ago.
#[derive(Default)]
pub(super) struct Denials(Mutex<HashMap<Refused, Count>>);

impl Denials {
    /// Counts it. What is to be told at once, if it is a new one.
    fn add(&self, refused: Refused, now: Timestamp) -> Option<Refused> {
        let mut all = lock(&self.0);
        let is_known = all.contains_key(&refused);
        let is_full = || all.keys().filter(|known| known.tenant == refused.tenant).count() >= MOST;
        let refused = if !is_known && is_full() { Refused::others(refused.tenant) } else { refused };
        if let Some(count) = all.get_mut(&refused) {
            count.more += 1;
            return None;
        }
        all.insert(refused.clone(), Count { told: now, more: 0 });
        Some(refused)
    }

    /// What came again, and when it is time to tell how often. What did not is forgotten.
    fn due(&self, now: Timestamp, all: bool) -> Vec<(Refused, u64)> {
        let mut due = Vec::new();
        lock(&self.0).retain(|refused, count| {
            if !all && now.duration_since(count.told) < MINUTE {
                return true;
            }
            let more = std::mem::replace(count, Count { told: now, more: 0 }).more;
            if more > 0 {
                due.push((refused.clone(), more));
            }
            more > 0
        });
        due
    }
}

/// Has the audit say what is denied.
pub(super) fn told(
    denials: Arc<Denials>,
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    tasks: Arc<Tasks>,
) -> OnDenied {
    Arc::new(move |scope: Scope, server, denied: &Denied<'_>| {
        let refused = Refused {
            whose: Some((scope, server)),
            tenant: scope.tenant(),
            host: denied.host.to_owned(),
            address: denied.address.map(|address| address.to_string()),
            reason: denied.reason.chars().take(LONGEST_REASON).collect(),
        };
        let now = world.now();
        let Some(first) = denials.add(refused, now) else { return };
        let (store, entry) = (store.clone(), first.entry(now, 1));
        tasks.start(async move { keep(&*store, first.tenant, entry).await });
    })
}

async fn keep(store: &dyn Store, tenant: TenantId, entry: Entry) {
    if let Err(error) = store.commit(tenant, Batch::new().audit(entry)).await {
        tracing::error!(%error, "the audit does not say what was denied");
    }
}

impl Hub {
    /// Tells how often something was denied again: what is due, or all of it.
    pub(super) async fn keep_denied(&self, all: bool) {
        let now = self.world.now();
        for (refused, count) in self.denials.due(now, all) {
            keep(&*self.store, refused.tenant, refused.entry(now, count)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Subject;

    fn refused(tenant: u128, host: &str) -> Refused {
        let tenant = TenantId::fixed(tenant);
        let whose = Some((Scope::new(tenant, Subject::Hub), ServerId::fixed(1)));
        Refused { whose, tenant, host: host.to_owned(), address: None, reason: "no".to_owned() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_storm_is_one_entry_a_minute() {
        let denials = Denials::default();
        assert!(denials.add(refused(1, "a"), at(0)).is_some());
        for second in 0..59 {
            assert!(denials.add(refused(1, "a"), at(second)).is_none());
            assert!(denials.due(at(second), false).is_empty());
        }
        assert_eq!(denials.due(at(60), false), [(refused(1, "a"), 59)]);
        assert!(denials.add(refused(1, "a"), at(61)).is_none());
        assert_eq!(denials.due(at(62), true), [(refused(1, "a"), 1)]);
        assert!(denials.due(at(122), false).is_empty());
        assert!(denials.add(refused(1, "a"), at(123)).is_some(), "it was forgotten");
    }

    #[test]
    fn a_storm_of_many_is_bounded_for_each_tenant() {
        let denials = Denials::default();
        let told = (0..10_000).filter_map(|number| denials.add(refused(1, &number.to_string()), at(0)));
        assert_eq!(told.count(), MOST + 1);
        assert!(denials.add(refused(2, "a"), at(0)).is_some(), "others are heard all the same");
        let due = denials.due(at(60), false);
        let rest = 10_000 - u64::try_from(MOST).unwrap() - 1;
        assert_eq!(due, [(Refused::others(TenantId::fixed(1)), rest)]);
        assert!(lock(&denials.0).len() == 1);
    }
}
