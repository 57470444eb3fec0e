//! Rejections in the audit: the first of its kind is written at once, repetitions once a minute with their count. This
//! covers denied egress, rejected calls and calls over a limit, so that no subject writes more than a bounded number of
//! entries per minute.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use linchpin::egress::Denial;
use serde_json::Value;

use super::repeated_events::{RepeatCounter, RepeatedEvent};
use crate::actor::Actor;
use crate::audit::AuditEntry;
use crate::connection::OnDenied;
use crate::error::Result;
use crate::hub::audit::Audit;
use crate::id::{CallId, TenantId};
use crate::store::Batch;

const MAX_EGRESS_REASON_LEN: usize = 300;

/// Rejected operation for the audit, as counted with its repetitions: the tenant, and an audit entry without its time.
#[derive(Debug, Clone)]
pub(in crate::hub) struct AuditRejection {
    tenant: TenantId,
    entry: AuditEntry,
    /// Text that distinguishes rejections of one action: the fields of the entry, and the error of a rejected call.
    details: String,
    /// Call record of the first rejection, if it is a call. Not part of the comparison.
    pub(in crate::hub) call: Option<CallId>,
}

impl PartialEq for AuditRejection {
    fn eq(&self, other: &Self) -> bool {
        let kind = |one: &Self| (one.tenant, one.entry.action);
        kind(self) == kind(other) && self.entry.actor == other.entry.actor && self.details == other.details
    }
}

impl Eq for AuditRejection {}

impl Hash for AuditRejection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tenant, &self.entry.actor, self.entry.action, &self.details).hash(state);
    }
}

impl AuditRejection {
    pub(in crate::hub) fn new(tenant: TenantId, entry: AuditEntry, call: Option<CallId>) -> Self {
        let details = Value::from(entry.fields.clone()).to_string();
        AuditRejection { tenant, entry, details, call }
    }

    /// Adds the error of a rejected call to the audit entry. The record of the first one has the error of all.
    pub(in crate::hub) fn with_error(mut self, error: &str) -> Self {
        self.details.push_str(error);
        self
    }
}

impl RepeatedEvent for AuditRejection {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Returns whether two rejections have the same subject and so count against the same share of the audit. Each
    /// subject has its own share of the audit, so that none hides the rejections of others.
    fn has_same_share(&self, other: &Self) -> bool {
        (self.tenant, &self.entry.actor) == (other.tenant, &other.entry.actor)
    }

    fn overflow_kind(&self) -> Self {
        let reason = "further rejections, counted together";
        let entry = AuditEntry::new(self.entry.at, &self.entry.actor, self.entry.action);
        AuditRejection::new(self.tenant, entry.with("reason", reason), None)
    }

    fn entry(&self, at: Timestamp, count: u64) -> AuditEntry {
        let entry = AuditEntry { at, ..self.entry.clone() }.with("count", count);
        self.call.iter().fold(entry, |entry, call| entry.with("call", call.to_string()))
    }

    fn drop_record(&mut self) {
        self.call = None;
    }
}

/// Counter of the rejected operations of the last minute, for the audit.
pub(in crate::hub) type Rejections = RepeatCounter<AuditRejection>;

impl Audit {
    /// Returns the callback that records denied egress in the audit.
    pub(in crate::hub) fn denial_recorder(&self) -> OnDenied {
        let (denials, context) = (self.rejections.clone(), self.context.clone());
        Arc::new(move |actor: Actor, server, denied: &Denial<'_>| {
            let now = context.platform.now();
            let reason: String = denied.reason.chars().take(MAX_EGRESS_REASON_LEN).collect();
            let mut entry = context
                .entry(actor, "egress.denied")
                .with("reason", reason)
                .with("server", server.to_string())
                .with("host", denied.host);
            if let Some(address) = denied.address {
                entry = entry.with("address", address.to_string());
            }
            let rejection = AuditRejection::new(actor.tenant(), entry, None);
            let (first, Some(count)) = denials.count(rejection, now) else { return };
            let (denials, store) = (denials.clone(), context.store.clone());
            context.tasks.spawn(async move { denials.write(&*store, &first, (now, count)).await });
        })
    }

    /// Counts a rejection. Returns the first of its kind, and the number of events if an entry is due now.
    pub(in crate::hub) fn count_repetition(
        &self,
        rejection: AuditRejection,
        now: Timestamp,
    ) -> (AuditRejection, Option<u64>) {
        self.rejections.count(rejection, now)
    }

    /// Commits a batch with the entry of a rejection. After a failure its events are counted in the next entry.
    pub(in crate::hub) async fn commit_rejection(
        &self,
        first: &AuditRejection,
        counted: (Timestamp, u64),
        batch: Batch,
    ) -> Result<()> {
        self.rejections.commit(&*self.context.store, first, counted, batch).await
    }

    /// Writes the counts of repeated rejected requests to the audit: those that are due, or all.
    pub(in crate::hub) async fn flush_rejections(&self, all: bool) {
        self.rejections.write_due(&*self.context.store, self.context.platform.now(), all).await;
    }

    /// Counts a rejected request for the audit and waits until the entry of the first of its kind is written.
    pub(in crate::hub) async fn audit_rejection(&self, tenant: TenantId, entry: AuditEntry) {
        if let Some(write) = self.count_rejection(tenant, entry) {
            let write = async move {
                write.await;
                Ok(())
            };
            let _ = self.context.detached(write).await; // fails only during shutdown
        }
    }

    /// Counts a rejected request for the audit without waiting: the response time must not reveal whether an entry was
    /// written.
    pub(in crate::hub) fn audit_rejection_later(&self, tenant: TenantId, entry: AuditEntry) {
        if let Some(write) = self.count_rejection(tenant, entry) {
            self.context.tasks.spawn(write);
        }
    }

    /// Counts a rejected request for the audit. Returns the future that writes the first of its kind.
    fn count_rejection(
        &self,
        tenant: TenantId,
        entry: AuditEntry,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let now = self.context.platform.now();
        let (first, Some(count)) = self.rejections.count(AuditRejection::new(tenant, entry, None), now)
        else {
            return None;
        };
        let (denials, store) = (self.rejections.clone(), self.context.store.clone());
        Some(async move { denials.write(&*store, &first, (now, count)).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::audit::repeated_events::MAX_KINDS;

    const ADA: TenantId = TenantId::from_u128(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn rejection(actor: &str, host: &str, call: u128) -> AuditRejection {
        let entry = AuditEntry::new(at(0), actor, "egress.denied").with("host", host);
        AuditRejection::new(ADA, entry, Some(CallId::from_u128(call)))
    }

    #[test]
    fn a_storm_is_one_entry_a_minute() {
        let denials = Rejections::default();
        assert_eq!(denials.count(rejection("hub", "a", 1), at(0)).1, Some(1));
        for second in 0..59 {
            let (first, count) = denials.count(rejection("hub", "a", 2), at(second));
            assert_eq!((first.call, count), (Some(CallId::from_u128(1)), None));
            assert!(denials.take_due(at(second), false).is_empty());
        }
        let due = denials.take_due(at(60), false);
        assert_eq!(due, [(rejection("hub", "a", 1), 59)]);
        let entry = due[0].0.entry(at(60), 59);
        assert_eq!((entry.at, &entry.fields["count"]), (at(60), &Value::from(59)));
        assert_eq!(entry.fields["call"], CallId::from_u128(1).to_string());
        assert_eq!(denials.count(rejection("hub", "a", 3), at(61)).1, None);
        assert_eq!(denials.take_due(at(62), true), [(rejection("hub", "a", 1), 1)]);
        assert!(denials.take_due(at(122), false).is_empty());
        assert_eq!(
            denials.count(rejection("hub", "a", 4), at(123)).1,
            Some(1),
            "the kind was dropped after a quiet minute"
        );
    }

    #[test]
    fn a_storm_of_many_is_bounded_for_each_actor() {
        let denials = Rejections::default();
        let add = |actor, number: u32| {
            denials.count(rejection(actor, &number.to_string(), u128::from(number)), at(0))
        };
        let event = (0..10_000).filter(|number| add("a", *number).1.is_some()).count();
        assert_eq!(event, MAX_KINDS + 1);
        let (others, count) = add("a", 10_000);
        assert_eq!((others.call, count), (None, None), "it shares the record of the others");
        assert_eq!(add("b", 0).1, Some(1), "others have a share of their own");
        let other = AuditRejection { tenant: TenantId::from_u128(2), ..rejection("a", "0", 0) };
        assert_eq!(denials.count(other, at(0)).1, Some(1));
        let rest = 10_001 - u64::try_from(MAX_KINDS).unwrap() - 1;
        assert_eq!(denials.take_due(at(60), false), [(others, rest)]);
    }
}
