//! Event log: a bounded, ordered buffer of the hub's last events for subscribers. A subscriber resumes after its last
//! event number as long as the buffer still holds the next events; otherwise it receives [`Lagged`].
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

/// Number of events that the event log holds in memory.
pub const CAPACITY: usize = 4_096;

/// Kind of the event that a call has a new status.
pub const CALL_EVENT: &str = "call";
/// Kind of the event that a call has made progress.
pub const CALL_PROGRESS_EVENT: &str = "call.progress";

/// Numbered event of the hub for subscribers, such as a changed call.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number of the event in the event log. Numbers increase, possibly with gaps.
    pub number: u64,
    /// Tenant whose subscribers receive the event.
    pub tenant: TenantId,
    /// Kind of the event, such as `call`.
    pub kind: Cow<'static, str>,
    /// Body of the event, as JSON. It contains no secrets.
    pub body: Value,
}

impl Event {
    /// Returns whether the event is not one of the frequent events of a call.
    fn is_change(&self) -> bool {
        self.kind != CALL_EVENT && self.kind != CALL_PROGRESS_EVENT
    }
}

/// Event that is not published yet, and has no number. The event log, or in a cluster the store, numbers it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Kind of the event, such as `call`.
    pub kind: &'static str,
    /// Body of the event, as JSON.
    pub body: Value,
}

impl NewEvent {
    /// Creates an event without a number.
    pub fn new(kind: &'static str, body: Value) -> Self {
        NewEvent { kind, body }
    }
}

/// Last events of a hub, in memory, for subscribers. Clones share one log.
#[derive(Clone)]
pub struct EventLog(Arc<Inner>);

struct Inner {
    buffer: Mutex<EventBuffer>,
    /// Number of the last published event, which subscribers watch.
    last_number: watch::Sender<u64>,
    /// Number of the last change: an event that is neither a status nor progress of a call.
    last_change: watch::Sender<u64>,
    /// Channel to the store that numbers the events of a cluster.
    forward: Option<mpsc::Sender<(TenantId, NewEvent)>>,
    /// Whether an event for the cluster was dropped because the channel was full.
    overflowed: AtomicBool,
}

#[derive(Default)]
struct EventBuffer {
    events: VecDeque<Arc<Event>>,
    /// Events up to this number are not in the buffer any more.
    last_dropped: u64,
    /// Number of the last change that is not in the buffer any more.
    last_dropped_change: u64,
}

impl EventBuffer {
    /// Creates a buffer that has lost all events up to a number.
    fn empty_after(number: u64) -> Self {
        EventBuffer { events: VecDeque::new(), last_dropped: number, last_dropped_change: number }
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new(None)
    }
}

impl EventLog {
    fn new(forward: Option<mpsc::Sender<(TenantId, NewEvent)>>) -> Self {
        let (buffer, overflowed) = (Mutex::default(), AtomicBool::new(false));
        let (last_number, last_change) = (watch::Sender::new(0), watch::Sender::new(0));
        EventLog(Arc::new(Inner { buffer, last_number, last_change, forward, overflowed }))
    }

    /// Creates the event log of a hub in a cluster, and the channel of events that the store must number. Published
    /// events are sent to the receiver, to be numbered and distributed.
    pub fn clustered() -> (Self, mpsc::Receiver<(TenantId, NewEvent)>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self::new(Some(sender)), receiver)
    }

    /// Publishes an event without waiting. Events of a commit belong to its batch instead.
    pub fn publish(&self, tenant: TenantId, event: NewEvent) {
        if let Some(forward) = &self.0.forward {
            if forward.try_send((tenant, event)).is_err() {
                self.0.overflowed.store(true, Ordering::SeqCst);
            }
            return;
        }
        let mut buffer = lock(&self.0.buffer);
        let (number, NewEvent { kind, body }) = (*self.0.last_number.borrow() + 1, event);
        self.push(&mut buffer, Event { number, tenant, kind: kind.into(), body });
    }

    /// Returns whether the event log has dropped an event since the last call of this function.
    pub fn take_overflowed(&self) -> bool {
        self.0.overflowed.swap(false, Ordering::SeqCst)
    }

    /// Marks a gap in the event log: events may have been lost, so that subscribers have to reload everything.
    fn mark_gap(&self) {
        let mut buffer = lock(&self.0.buffer);
        let number = *self.0.last_number.borrow() + 1;
        *buffer = EventBuffer::empty_after(number);
        self.0.last_number.send_replace(number);
        self.0.last_change.send_replace(number);
    }

    /// Adds an event that the store has numbered, of this hub or of a peer hub.
    pub fn deliver(&self, event: Event) {
        self.push(&mut lock(&self.0.buffer), event);
    }

    /// Empties the event log and continues after the event with this number. Earlier events are not available here.
    pub fn reset_to(&self, number: u64) {
        let mut buffer = lock(&self.0.buffer);
        *buffer = EventBuffer::empty_after(number);
        self.0.last_number.send_replace(number);
        self.0.last_change.send_replace(number);
    }

    fn push(&self, buffer: &mut EventBuffer, event: Event) {
        if buffer.events.len() == CAPACITY {
            let dropped = buffer.events.pop_front();
            let number = |event: &Arc<Event>| event.number;
            buffer.last_dropped = dropped.as_ref().map_or(buffer.last_dropped, number);
            let change = dropped.as_ref().filter(|event| event.is_change());
            buffer.last_dropped_change = change.map_or(buffer.last_dropped_change, number);
        }
        let (number, is_change) = (event.number, event.is_change());
        buffer.events.push_back(Arc::new(event));
        self.0.last_number.send_replace(number);
        if is_change {
            self.0.last_change.send_replace(number);
        }
    }

    /// Subscribes to the events of a tenant, after this event number. Default: only new events.
    pub fn subscribe(&self, tenant: TenantId, after: Option<u64>) -> EventSubscription {
        let newest = self.0.last_number.subscribe();
        let last_seen = after.unwrap_or_else(|| *newest.borrow());
        EventSubscription { log: self.clone(), tenant: Some(tenant), last_seen, newest }
    }

    /// Subscribes to the new events of all tenants, except status and progress of calls, which are frequent.
    pub fn subscribe_to_changes(&self) -> EventSubscription {
        let newest = self.0.last_change.subscribe();
        let last_seen = *newest.borrow();
        EventSubscription { log: self.clone(), tenant: None, last_seen, newest }
    }
}

/// Events of a batch, published when its commit succeeds. If it is dropped before the result is known, a gap is marked.
pub(crate) struct PublishOnCommit {
    log: EventLog,
    tenant: TenantId,
    events: Vec<NewEvent>,
}

impl PublishOnCommit {
    /// Creates the guard before the commit starts; after a successful commit it publishes these events.
    pub(crate) fn new(log: EventLog, tenant: TenantId, events: Vec<NewEvent>) -> Self {
        PublishOnCommit { log, tenant, events }
    }

    /// Publishes the events if the commit succeeded, and discards them otherwise.
    pub(crate) fn finish(mut self, committed: bool) {
        for event in std::mem::take(&mut self.events).into_iter().filter(|_| committed) {
            self.log.publish(self.tenant, event);
        }
    }
}

impl Drop for PublishOnCommit {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.log.mark_gap();
        }
    }
}

/// Position of one subscriber in the event log, from which it reads the next events.
pub struct EventSubscription {
    log: EventLog,
    /// Tenant whose events the subscription receives; `None` for the changes of all tenants.
    tenant: Option<TenantId>,
    last_seen: u64,
    /// Number of the newest event that may belong to the subscription.
    newest: watch::Receiver<u64>,
}

/// Error of a subscriber that missed events: it has to reload everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lagged;

impl EventSubscription {
    /// Waits for the next event of the subscription.
    pub async fn next(&mut self) -> Result<Arc<Event>, Lagged> {
        loop {
            let last = *self.newest.borrow_and_update();
            if let Some(event) = self.find_next(last)? {
                return Ok(event);
            }
            if self.newest.changed().await.is_err() {
                std::future::pending::<()>().await; // the log is closed: there are no further events
            }
        }
    }

    fn find_next(&mut self, newest: u64) -> Result<Option<Arc<Event>>, Lagged> {
        let buffer = lock(&self.log.0.buffer);
        // The last number belongs to an earlier run of the hub, or the events after it are not in the buffer any more.
        let dropped = self.tenant.map_or(buffer.last_dropped_change, |_| buffer.last_dropped);
        if self.last_seen > newest || self.last_seen < dropped {
            self.last_seen = newest.max(dropped);
            return Err(Lagged);
        }
        let from = buffer.events.partition_point(|event| event.number <= self.last_seen);
        let is_subscribed =
            |event: &Event| self.tenant.map_or(event.is_change(), |tenant| event.tenant == tenant);
        let found = buffer.events.iter().skip(from).find(|event| is_subscribed(event)).cloned();
        self.last_seen = found.as_ref().map_or(newest.max(self.last_seen), |event| event.number);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ADA: TenantId = TenantId::from_u128(1);
    const BOB: TenantId = TenantId::from_u128(2);

    #[tokio::test]
    async fn whoever_was_away_goes_on_where_they_were() {
        let events = EventLog::default();
        let mut subscription = events.subscribe(ADA, None);
        for number in 1..=6 {
            events.publish(if number % 2 == 0 { BOB } else { ADA }, NewEvent::new("call", json!(number)));
        }
        let mut numbers = Vec::new();
        for _ in 0..3 {
            numbers.push(subscription.next().await.unwrap().number);
        }
        assert_eq!(numbers, [1, 3, 5]);
        assert_eq!(events.subscribe(ADA, Some(1)).next().await.unwrap().number, 3);
        assert_eq!(events.subscribe(BOB, Some(4)).next().await.unwrap().number, 6);
        let (waits, publish) =
            (subscription.next(), async { events.publish(ADA, NewEvent::new("server", json!({}))) });
        let (event, ()) = tokio::join!(waits, publish);
        assert_eq!((event.unwrap().number, 7), (7, 7));
    }

    #[tokio::test]
    async fn a_subscriber_to_changes_is_not_woken_by_calls() {
        let events = EventLog::default();
        let mut changes = events.subscribe_to_changes();
        events.publish(ADA, NewEvent::new("server", json!({})));
        // More calls than the buffer holds: the earlier change is lost, but no later one.
        let publish_calls = || {
            for number in 0..CAPACITY {
                events.publish(BOB, NewEvent::new(CALL_EVENT, json!(number)));
            }
        };
        publish_calls();
        assert_eq!(changes.next().await, Err(Lagged));
        publish_calls();
        events.publish(BOB, NewEvent::new("agent", json!({})));
        assert_eq!(changes.next().await.unwrap().kind, "agent");
        events.publish(ADA, NewEvent::new(CALL_EVENT, json!({})));
        assert!(!changes.newest.has_changed().unwrap());
    }

    #[tokio::test]
    async fn of_what_nobody_knows_everybody_is_told_to_look_again() {
        let events = EventLog::default();
        let mut subscription = events.subscribe(ADA, None);
        let pending_event = |number: u8| {
            PublishOnCommit::new(events.clone(), ADA, vec![NewEvent::new("call", json!(number))])
        };
        pending_event(0).finish(false);
        pending_event(1).finish(true);
        assert_eq!(subscription.next().await.unwrap().body, json!(1));
        drop(pending_event(2));
        assert_eq!(subscription.next().await, Err(Lagged));
        pending_event(3).finish(true);
        assert_eq!(subscription.next().await.unwrap().body, json!(3));
    }

    #[tokio::test]
    async fn what_is_forgotten_is_said_to_be() {
        let events = EventLog::default();
        let mut slow = events.subscribe(ADA, None);
        for number in 0..=CAPACITY {
            events.publish(ADA, NewEvent::new("call", json!(number)));
        }
        assert_eq!(slow.next().await, Err(Lagged));
        let number = CAPACITY as u64 + 1;
        events.publish(ADA, NewEvent::new("call", json!("next")));
        assert_eq!(slow.next().await.unwrap().number, number + 1);
        assert_eq!(
            events.subscribe(ADA, Some(number + 100)).next().await,
            Err(Lagged),
            "number of another run"
        );
        assert_eq!(events.subscribe(ADA, Some(2)).next().await.unwrap().number, 3);
    }
}
