//! Schedule of the periodic syncs. Each server has its own interval, or that of the hub.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::sync_queue::ServerKey;
use crate::id::{ServerId, TenantId};

/// Times of the next periodic sync of each server.
pub(in crate::hub) struct SyncSchedule {
    /// Start of the current interval of each server, and the length of the interval.
    intervals: HashMap<ServerKey, (Timestamp, Duration)>,
    /// Time at which the servers are examined again: one of them is due then.
    next: Timestamp,
    /// Interval of the hub with which `next` was determined.
    hub_interval: Duration,
    /// Time at which the hub was started, when all servers were synced.
    started: Timestamp,
}

impl SyncSchedule {
    /// Creates the schedule of a hub that was started at this time.
    pub(in crate::hub) fn new(started: Timestamp) -> Self {
        let (intervals, hub_interval) = (HashMap::new(), Duration::ZERO);
        SyncSchedule { intervals, next: Timestamp::MIN, hub_interval, started }
    }

    /// Returns whether a server may be due, or the servers or the interval of the hub have changed.
    pub(in crate::hub) fn is_due(&self, now: Timestamp, hub_interval: Duration) -> bool {
        now >= self.next || hub_interval != self.hub_interval
    }

    /// Starts an examination of the servers of all tenants.
    pub(in crate::hub) fn begin(&mut self, hub_interval: Duration) {
        (self.next, self.hub_interval) = (Timestamp::MAX, hub_interval);
    }

    /// Ends the examination of a tenant whose servers could not be read, or requests one because servers have changed.
    pub(in crate::hub) fn examine_again(&mut self) {
        self.next = Timestamp::MIN;
    }

    /// Returns the servers of a tenant that are due and starts their next intervals. The first interval starts when the
    /// hub was started or the server was changed, since both are followed by a sync.
    pub(in crate::hub) fn take_due(
        &mut self,
        tenant: TenantId,
        now: Timestamp,
        servers: &[(ServerId, Option<Duration>, Timestamp)],
    ) -> Vec<ServerId> {
        let mut due = Vec::new();
        let mut before = HashMap::new();
        self.intervals.retain(|key, interval| {
            let is_other = key.0 != tenant;
            if !is_other {
                before.insert(key.1, *interval);
            }
            is_other
        });
        for &(server, own_interval, changed) in servers {
            let interval = own_interval.unwrap_or(self.hub_interval);
            let mut start = before.get(&server).map_or(changed.max(self.started), |(start, _)| *start);
            if end_of(start, interval) <= now {
                due.push(server);
                start = now;
            }
            self.intervals.insert((tenant, server), (start, interval));
            self.next = self.next.min(end_of(start, interval));
        }
        due
    }
}

fn end_of(start: Timestamp, interval: Duration) -> Timestamp {
    start.saturating_add(interval).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_u128(1);
    const SLOW: ServerId = ServerId::from_u128(1);
    const FAST: ServerId = ServerId::from_u128(2);
    const HUB: Duration = Duration::from_mins(15);

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(60 * minutes).unwrap()
    }

    #[test]
    fn each_server_has_its_own_interval_or_that_of_the_hub() {
        let mut schedule = SyncSchedule::new(at(0));
        let servers = [(SLOW, None, at(-9)), (FAST, Some(Duration::from_mins(5)), at(-9))];
        let mut due = |minutes, hub_interval| {
            if !schedule.is_due(at(minutes), hub_interval) {
                return None;
            }
            schedule.begin(hub_interval);
            Some(schedule.take_due(TENANT, at(minutes), &servers))
        };
        assert_eq!(due(0, HUB), Some(vec![]), "the intervals start now");
        assert_eq!(due(4, HUB), None, "no server is due");
        assert_eq!(due(5, HUB), Some(vec![FAST]));
        assert_eq!(due(9, HUB), None);
        assert_eq!(due(12, HUB), Some(vec![FAST]));
        assert_eq!(due(15, HUB), Some(vec![SLOW]));
        assert_eq!(due(16, Duration::from_mins(1)), Some(vec![SLOW]), "a shorter interval applies at once");
    }

    #[test]
    fn a_removed_server_and_another_tenant_have_their_own_intervals() {
        let mut schedule = SyncSchedule::new(at(0));
        schedule.begin(HUB);
        let other = TenantId::from_u128(2);
        schedule.take_due(TENANT, at(0), &[(SLOW, None, at(0))]);
        schedule.take_due(other, at(10), &[(FAST, None, at(10))]);
        assert_eq!(schedule.take_due(TENANT, at(10), &[]), [], "the server was removed");
        assert_eq!(schedule.take_due(TENANT, at(20), &[(SLOW, None, at(20))]), [], "it is new");
        assert_eq!(schedule.take_due(other, at(25), &[(FAST, None, at(10))]), [FAST]);
        schedule.examine_again();
        assert!(schedule.is_due(at(0), HUB));
    }
}
