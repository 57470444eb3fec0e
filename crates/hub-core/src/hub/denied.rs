//! Refusals in the audit: the first of its kind is written at once, and repetitions once a minute, with their count.
//! Egress that was denied, calls that were refused and calls over a limit all come here, so that no subject writes more
//! than a bounded number of entries a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use linchpin::egress::Denied;
use serde_json::Value;

use super::Hub;
use crate::audit::Entry;
use crate::connection::OnDenied;
use crate::id::{CallId, TenantId};
use crate::scope::Scope;
use crate::store::{Batch, Store};
use crate::sync::lock;
use crate::tasks::Tasks;
use crate::world::World;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Kinds of one actor that are told apart; all others are one.
const MOST: usize = 100;
const LONGEST_REASON: usize = 300;

/// Kind of refusal: the tenant, the actor, and action and fields of the entry as text.
type Kind = (TenantId, String, String);

struct Count {
    /// The entry without its count.
    entry: Entry,
    /// The record of the first one, if it is a call.
    call: Option<CallId>,
    told: Timestamp,
    more: u64,
}

/// What to do about a refusal that was counted.
#[derive(Debug, PartialEq)]
pub(super) struct Counted {
    /// The entry to write now, if it is the first of its kind.
    pub(super) entry: Option<Entry>,
    /// The record of the first one of its kind, if it is a call.
    pub(super) call: Option<CallId>,
}

/// Refusals of the last minute.
#[derive(Default)]
pub(super) struct Denials(Mutex<HashMap<Kind, Count>>);

fn kind_of(tenant: TenantId, entry: &Entry) -> Kind {
    let fields = Value::from(entry.fields.clone());
    (tenant, entry.actor.clone(), format!("{} {fields}", entry.action))
}

impl Denials {
    /// Counts a refusal. Entries that differ in anything but their time are of different kinds.
    pub(super) fn add(&self, tenant: TenantId, entry: Entry, call: Option<CallId>) -> Counted {
        let mut all = lock(&self.0);
        let (mut kind, mut entry, mut call) = (kind_of(tenant, &entry), entry, call);
        let is_of_actor = |known: &&Kind| (known.0, &known.1) == (tenant, &kind.1);
        if !all.contains_key(&kind) && all.keys().filter(is_of_actor).count() >= MOST {
            let reason = "more was denied than is told one by one";
            entry = Entry::new(entry.at, &entry.actor, entry.action).with("reason", reason);
            (kind, call) = (kind_of(tenant, &entry), None);
        }
        if let Some(count) = all.get_mut(&kind) {
            count.more += 1;
            return Counted { entry: None, call: count.call };
        }
        let told = entry.at;
        all.insert(kind, Count { entry: entry.clone(), call, told, more: 0 });
        Counted { entry: Some(entry.with("count", 1)), call }
    }

    /// Forgets a refusal whose first entry could not be written.
    pub(super) fn forget(&self, tenant: TenantId, entry: &Entry) {
        lock(&self.0).remove(&kind_of(tenant, entry));
    }

    /// Entries about what was repeated since it was last told. What was not repeated is forgotten.
    fn due(&self, now: Timestamp, all: bool) -> Vec<(TenantId, Entry)> {
        let mut due = Vec::new();
        lock(&self.0).retain(|(tenant, ..), count| {
            if !all && now.duration_since(count.told) < MINUTE {
                return true;
            }
            let more = std::mem::take(&mut count.more);
            count.told = now;
            if more > 0 {
                let mut entry = Entry { at: now, ..count.entry.clone() }.with("count", more);
                if let Some(call) = count.call {
                    entry = entry.with("call", call.to_string());
                }
                due.push((*tenant, entry));
            }
            more > 0
        });
        due
    }
}

/// Has the audit say what egress denies.
pub(super) fn told(
    denials: Arc<Denials>,
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    tasks: Arc<Tasks>,
) -> OnDenied {
    Arc::new(move |scope: Scope, server, denied: &Denied<'_>| {
        let reason: String = denied.reason.chars().take(LONGEST_REASON).collect();
        let mut entry = Entry::new(world.now(), &scope.subject().to_string(), "egress.denied")
            .with("reason", reason)
            .with("server", server.to_string())
            .with("host", denied.host);
        if let Some(address) = denied.address {
            entry = entry.with("address", address.to_string());
        }
        let tenant = scope.tenant();
        let Some(first) = denials.add(tenant, entry, None).entry else { return };
        let store = store.clone();
        tasks.start(async move { keep(&*store, tenant, first).await });
    })
}

async fn keep(store: &dyn Store, tenant: TenantId, entry: Entry) {
    if let Err(error) = store.commit(tenant, Batch::new().audit(entry)).await {
        tracing::error!(%error, "the audit does not say what was denied");
    }
}

impl Hub {
    /// Writes how often refusals were repeated: those that are due, or all.
    pub(super) async fn keep_denied(&self, all: bool) {
        for (tenant, entry) in self.denials.due(self.world.now(), all) {
            keep(&*self.store, tenant, entry).await;
        }
    }

    /// Counts a refusal, and waits until the first of its kind is written.
    pub(super) async fn audit_refusal(&self, tenant: TenantId, entry: Entry) {
        if let Some(first) = self.denials.add(tenant, entry, None).entry
            && let Err(error) = self.commit_then(tenant, Batch::new().audit(first), |_| ()).await
        {
            tracing::error!(%error, "the audit does not say what was denied");
        }
    }

    /// Counts a refusal without waiting: how long the caller waits must not say whether something was written.
    pub(super) fn audit_refusal_later(&self, tenant: TenantId, entry: Entry) {
        let Some(first) = self.denials.add(tenant, entry, None).entry else { return };
        let store = self.store.clone();
        self.tasks.start(async move { keep(&*store, tenant, first).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: TenantId = TenantId::fixed(1);

    fn entry(actor: &str, host: &str, second: i64) -> Entry {
        let at = Timestamp::from_second(second).unwrap();
        Entry::new(at, actor, "egress.denied").with("host", host)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_storm_is_one_entry_a_minute() {
        let (denials, call) = (Denials::default(), CallId::fixed(1));
        let first = denials.add(ADA, entry("hub", "a", 0), Some(call));
        assert_eq!(first, Counted { entry: Some(entry("hub", "a", 0).with("count", 1)), call: Some(call) });
        for second in 0..59 {
            let again = denials.add(ADA, entry("hub", "a", second), Some(CallId::fixed(2)));
            assert_eq!(again, Counted { entry: None, call: Some(call) });
            assert!(denials.due(at(second), false).is_empty());
        }
        let with_call = |entry: Entry| entry.with("call", call.to_string());
        let due = |second, count| vec![(ADA, with_call(entry("hub", "a", second).with("count", count)))];
        assert_eq!(denials.due(at(60), false), due(60, 59));
        assert!(denials.add(ADA, entry("hub", "a", 61), None).entry.is_none());
        assert_eq!(denials.due(at(62), true), due(62, 1));
        assert!(denials.due(at(122), false).is_empty());
        assert!(denials.add(ADA, entry("hub", "a", 123), None).entry.is_some(), "it was forgotten");
        denials.forget(ADA, &entry("hub", "a", 124));
        assert!(denials.add(ADA, entry("hub", "a", 124), None).entry.is_some(), "it could not be written");
    }

    #[test]
    fn a_storm_of_many_is_bounded_for_each_actor() {
        let denials = Denials::default();
        let add = |actor, number: usize| {
            denials.add(ADA, entry(actor, &number.to_string(), 0), Some(CallId::fixed(number as u128)))
        };
        let told: Vec<_> = (0..10_000).filter_map(|number| add("a", number).entry).collect();
        assert_eq!(told.len(), MOST + 1);
        assert_eq!(add("a", 10_000), Counted { entry: None, call: None }, "it has no record of its own");
        assert!(add("b", 0).entry.is_some(), "others have a share of their own");
        assert!(denials.add(TenantId::fixed(2), entry("a", "a", 0), None).entry.is_some());
        let due = denials.due(at(60), false);
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].1.fields["count"], 10_001 - MOST - 1);
        assert_eq!(lock(&denials.0).len(), 1);
    }
}
