//! Event log: a bounded, ordered buffer of events for subscribers. A subscriber resumes after its last event number as
//! long as the buffer still holds the next events; otherwise it receives [`Missed`].
//!
//! In a cluster, events go to the store first, which numbers them and distributes them to all hubs.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::id::TenantId;
use crate::lock::lock;

/// Number of events in the buffer.
pub const REMEMBERED: usize = 4_096;

/// Event of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number of the event. Numbers increase, possibly with gaps.
    pub number: u64,
    /// Tenant of the event.
    pub tenant: TenantId,
    /// Kind, such as `call`.
    pub kind: Cow<'static, str>,
    /// Body. It contains no secrets.
    pub body: Value,
}

/// Event that has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Kind of the event.
    pub kind: &'static str,
    /// Body of the event.
    pub body: Value,
}

impl Told {
    /// Creates an event.
    pub fn new(kind: &'static str, body: Value) -> Self {
        Told { kind, body }
    }
}

/// Log of the events of a hub. Clones share one log.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    last: Mutex<Last>,
    /// Number of the last event.
    number: watch::Sender<u64>,
    /// Channel to the store that numbers the events of a cluster.
    outlet: Option<mpsc::Sender<(TenantId, Told)>>,
    /// Whether an event was dropped because the channel was full.
    is_cut: AtomicBool,
}

#[derive(Default)]
struct Last {
    events: VecDeque<Arc<Event>>,
    /// Events up to this number are not in the buffer any more.
    floor: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Events {
    fn new(outlet: Option<mpsc::Sender<(TenantId, Told)>>) -> Self {
        let (last, is_cut) = (Mutex::default(), AtomicBool::new(false));
        Events(Arc::new(Inner { last, number: watch::Sender::new(0), outlet, is_cut }))
    }

    /// Creates the log of a hub in a cluster. Published events are sent to the receiver, to be numbered and
    /// distributed.
    pub fn shared() -> (Self, mpsc::Receiver<(TenantId, Told)>) {
        let (outlet, told) = mpsc::channel(REMEMBERED);
        (Self::new(Some(outlet)), told)
    }

    /// Publishes an event without waiting. Events of a commit belong to its batch instead.
    pub fn publish(&self, tenant: TenantId, told: Told) {
        if let Some(outlet) = &self.0.outlet {
            if outlet.try_send((tenant, told)).is_err() {
                self.0.is_cut.store(true, Ordering::SeqCst);
            }
            return;
        }
        let mut last = lock(&self.0.last);
        let (number, Told { kind, body }) = (*self.0.number.borrow() + 1, told);
        self.add(&mut last, Event { number, tenant, kind: kind.into(), body });
    }

    /// Returns whether an event was dropped since the last call.
    pub fn was_cut(&self) -> bool {
        self.0.is_cut.swap(false, Ordering::SeqCst)
    }

    /// Marks a gap: events may have been lost, so that subscribers have to reload everything.
    fn lose(&self) {
        let mut last = lock(&self.0.last);
        let number = *self.0.number.borrow() + 1;
        *last = Last { events: VecDeque::new(), floor: number };
        self.0.number.send_replace(number);
    }

    /// Adds an event that the store has numbered, of this hub or of a peer hub.
    pub fn deliver(&self, event: Event) {
        self.add(&mut lock(&self.0.last), event);
    }

    /// Resets the log to this number. Earlier events are not available here.
    pub fn forget(&self, number: u64) {
        let mut last = lock(&self.0.last);
        *last = Last { events: VecDeque::new(), floor: number };
        self.0.number.send_replace(number);
    }

    fn add(&self, last: &mut Last, event: Event) {
        if last.events.len() == REMEMBERED {
            last.floor = last.events.pop_front().map_or(last.floor, |event| event.number);
        }
        let number = event.number;
        last.events.push_back(Arc::new(event));
        self.0.number.send_replace(number);
    }

    /// Subscribes to the events of a tenant, after this event number. Default: only new events.
    pub fn watch(&self, tenant: TenantId, after: Option<u64>) -> Watching {
        self.watching(Some(tenant), after)
    }

    /// Subscribes to new events of all tenants.
    pub fn watch_all(&self) -> Watching {
        self.watching(None, None)
    }

    fn watching(&self, tenant: Option<TenantId>, after: Option<u64>) -> Watching {
        let number = self.0.number.subscribe();
        let seen = after.unwrap_or_else(|| *number.borrow());
        Watching { events: self.clone(), tenant, seen, number }
    }
}

/// Events to publish when a commit succeeds. If it is dropped before the result is known, a gap is marked.
pub(crate) struct Untold {
    events: Events,
    tenant: TenantId,
    told: Vec<Told>,
}

impl Untold {
    /// Creates the guard before the commit starts.
    pub(crate) fn new(events: Events, tenant: TenantId, told: Vec<Told>) -> Self {
        Untold { events, tenant, told }
    }

    /// Publishes the events if the commit succeeded, and discards them otherwise.
    pub(crate) fn over(mut self, is_done: bool) {
        for told in std::mem::take(&mut self.told).into_iter().filter(|_| is_done) {
            self.events.publish(self.tenant, told);
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if !self.told.is_empty() {
            self.events.lose();
        }
    }
}

/// Subscription to the event log.
pub struct Watching {
    events: Events,
    /// Tenant of the events; `None` for all tenants.
    tenant: Option<TenantId>,
    seen: u64,
    number: watch::Receiver<u64>,
}

/// Error of a subscriber that missed events: it has to reload everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed;

impl Watching {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<Arc<Event>, Missed> {
        loop {
            let last = *self.number.borrow_and_update();
            if let Some(event) = self.look(last)? {
                return Ok(event);
            }
            if self.number.changed().await.is_err() {
                std::future::pending::<()>().await; // the log is closed: there are no further events
            }
        }
    }

    fn look(&mut self, newest: u64) -> Result<Option<Arc<Event>>, Missed> {
        let last = lock(&self.events.0.last);
        // The last number belongs to an earlier run of the hub, or the events after it are not in the buffer any more.
        if self.seen > newest || self.seen < last.floor {
            self.seen = newest.max(last.floor);
            return Err(Missed);
        }
        let from = last.events.partition_point(|event| event.number <= self.seen);
        let is_wanted = |event: &Event| self.tenant.is_none_or(|tenant| event.tenant == tenant);
        let found = last.events.iter().skip(from).find(|event| is_wanted(event)).cloned();
        self.seen = found.as_ref().map_or(newest.max(self.seen), |event| event.number);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ADA: TenantId = TenantId::fixed(1);
    const BOB: TenantId = TenantId::fixed(2);

    #[tokio::test]
    async fn whoever_was_away_goes_on_where_they_were() {
        let events = Events::default();
        let mut watching = events.watch(ADA, None);
        for number in 1..=6 {
            events.publish(if number % 2 == 0 { BOB } else { ADA }, Told::new("call", json!(number)));
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(watching.next().await.unwrap().number);
        }
        assert_eq!(seen, [1, 3, 5]);
        assert_eq!(events.watch(ADA, Some(1)).next().await.unwrap().number, 3);
        assert_eq!(events.watch(BOB, Some(4)).next().await.unwrap().number, 6);
        let (waits, publish) =
            (watching.next(), async { events.publish(ADA, Told::new("server", json!({}))) });
        let (event, ()) = tokio::join!(waits, publish);
        assert_eq!((event.unwrap().number, 7), (7, 7));
    }

    #[tokio::test]
    async fn of_what_nobody_knows_everybody_is_told_to_look_again() {
        let events = Events::default();
        let mut watching = events.watch(ADA, None);
        let untold = |number: u8| Untold::new(events.clone(), ADA, vec![Told::new("call", json!(number))]);
        untold(0).over(false);
        untold(1).over(true);
        assert_eq!(watching.next().await.unwrap().body, json!(1));
        drop(untold(2));
        assert_eq!(watching.next().await, Err(Missed));
        untold(3).over(true);
        assert_eq!(watching.next().await.unwrap().body, json!(3));
    }

    #[tokio::test]
    async fn what_is_forgotten_is_said_to_be() {
        let events = Events::default();
        let mut slow = events.watch(ADA, None);
        for number in 0..=REMEMBERED {
            events.publish(ADA, Told::new("call", json!(number)));
        }
        assert_eq!(slow.next().await, Err(Missed));
        let number = REMEMBERED as u64 + 1;
        events.publish(ADA, Told::new("call", json!("next")));
        assert_eq!(slow.next().await.unwrap().number, number + 1);
        assert_eq!(events.watch(ADA, Some(number + 100)).next().await, Err(Missed), "number of another run");
        assert_eq!(events.watch(ADA, Some(2)).next().await.unwrap().number, 3);
    }
}
