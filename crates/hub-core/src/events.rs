//! What happens, as it happens: for pages and programs that watch. Whoever was away for a while can go on from where they
//! were, as long as that is still known; if not, they are told so.
//!
//! Where several hubs share a store, what happens at one goes to the store first, which numbers it and tells all of them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::id::TenantId;
use crate::sync::lock;

/// How many events are remembered for each who comes back.
pub const REMEMBERED: usize = 4_096;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Each has a larger one than those before it.
    pub number: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// What kind of thing, such as `call`.
    pub kind: Cow<'static, str>,
    /// What it says. Nothing secret.
    pub body: Value,
}

/// Something that has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What kind of thing.
    pub kind: &'static str,
    /// What it says.
    pub body: Value,
}

impl Told {
    /// Something of this kind.
    pub fn new(kind: &'static str, body: Value) -> Self {
        Told { kind, body }
    }
}

/// Everything that happens.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    last: Mutex<Last>,
    /// The number of the last one.
    number: watch::Sender<u64>,
    /// Where they go first, if the store numbers them, and whether one was too many for it.
    outlet: Option<mpsc::Sender<(TenantId, Told)>>,
    is_cut: AtomicBool,
}

#[derive(Default)]
struct Last {
    events: VecDeque<Arc<Event>>,
    /// What came up to this one is forgotten.
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

    /// Those of several hubs: whatever happens here comes out at the other end, to be numbered and delivered everywhere.
    pub fn shared() -> (Self, mpsc::Receiver<(TenantId, Told)>) {
        let (outlet, told) = mpsc::channel(REMEMBERED);
        (Self::new(Some(outlet)), told)
    }

    /// Says that something happened. What one batch changes is told with it instead. Nobody is waited for.
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

    /// Whether something could not be told since this was last asked.
    pub fn was_cut(&self) -> bool {
        self.0.is_cut.swap(false, Ordering::SeqCst)
    }

    /// Something may have happened that nobody can tell: whoever watches has to look at everything again.
    fn lose(&self) {
        let mut last = lock(&self.0.last);
        let number = *self.0.number.borrow() + 1;
        *last = Last { events: VecDeque::new(), floor: number };
        self.0.number.send_replace(number);
    }

    /// What the store has numbered has happened, here or at another hub.
    pub fn deliver(&self, event: Event) {
        self.add(&mut lock(&self.0.last), event);
    }

    /// What came up to this number is not known here.
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

    /// Watches what happens to a tenant, after the event with this number, or from now on.
    pub fn watch(&self, tenant: TenantId, after: Option<u64>) -> Watching {
        self.watching(Some(tenant), after)
    }

    /// Watches everything, from now on.
    pub fn watch_all(&self) -> Watching {
        self.watching(None, None)
    }

    fn watching(&self, tenant: Option<TenantId>, after: Option<u64>) -> Watching {
        let number = self.0.number.subscribe();
        let seen = after.unwrap_or_else(|| *number.borrow());
        Watching { events: self.clone(), tenant, seen, number }
    }
}

/// What is told when something is done. Whoever does it may leave before they know: then nobody knows.
pub(crate) struct Untold {
    events: Events,
    tenant: TenantId,
    told: Vec<Told>,
}

impl Untold {
    /// For what is about to be done.
    pub(crate) fn new(events: Events, tenant: TenantId, told: Vec<Told>) -> Self {
        Untold { events, tenant, told }
    }

    /// It is known whether it is done.
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

/// Somebody who watches.
pub struct Watching {
    events: Events,
    /// Whose; everybody's, if it is not said.
    tenant: Option<TenantId>,
    seen: u64,
    number: watch::Receiver<u64>,
}

/// Some events are not known any more: whoever watches has to look at everything again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed;

impl Watching {
    /// The next event of the tenant.
    pub async fn next(&mut self) -> Result<Arc<Event>, Missed> {
        loop {
            let last = *self.number.borrow_and_update();
            if let Some(event) = self.look(last)? {
                return Ok(event);
            }
            if self.number.changed().await.is_err() {
                std::future::pending::<()>().await; // nothing more can happen
            }
        }
    }

    fn look(&mut self, newest: u64) -> Result<Option<Arc<Event>>, Missed> {
        let last = lock(&self.events.0.last);
        // What was seen before this hub was started, or so long ago that it is forgotten.
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
        assert_eq!(events.watch(ADA, Some(number + 100)).next().await, Err(Missed), "of another run");
        assert_eq!(events.watch(ADA, Some(2)).next().await.unwrap().number, 3);
    }
}
