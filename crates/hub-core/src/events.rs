//! What happens, as it happens: for pages and programs that watch. Whoever was away for a while can go on from where they
//! were, as long as that is still known; if not, they are told so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::watch;

use crate::id::TenantId;
use crate::sync::lock;

/// How many events are remembered for each who comes back.
const REMEMBERED: usize = 4_096;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// From one on, without a gap, for as long as the hub runs.
    pub number: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// What kind of thing, such as `call`.
    pub kind: &'static str,
    /// What it says. Nothing secret.
    pub body: Value,
}

/// Everything that happens.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    last: Mutex<VecDeque<Arc<Event>>>,
    /// The number of the last one.
    number: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        Events(Arc::new(Inner { last: Mutex::default(), number: watch::Sender::new(0) }))
    }
}

impl Events {
    /// Says that something happened. Nobody is waited for.
    pub fn publish(&self, tenant: TenantId, kind: &'static str, body: Value) {
        let mut last = lock(&self.0.last);
        let number = last.back().map_or(1, |event| event.number + 1);
        if last.len() == REMEMBERED {
            last.pop_front();
        }
        last.push_back(Arc::new(Event { number, tenant, kind, body }));
        self.0.number.send_replace(number);
    }

    /// Watches what happens to a tenant, after the event with this number, or from now on.
    pub fn watch(&self, tenant: TenantId, after: Option<u64>) -> Watching {
        let number = self.0.number.subscribe();
        let seen = after.unwrap_or_else(|| *number.borrow());
        Watching { events: self.clone(), tenant, seen, number }
    }
}

/// Somebody who watches.
pub struct Watching {
    events: Events,
    tenant: TenantId,
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
        let first = last.front().map_or(1, |event| event.number);
        // What was seen before this hub was started, or so long ago that it is forgotten.
        if self.seen > newest || self.seen + 1 < first {
            self.seen = newest;
            return Err(Missed);
        }
        let from = usize::try_from(self.seen + 1 - first).unwrap_or(usize::MAX);
        let found = last.iter().skip(from).find(|event| event.tenant == self.tenant).cloned();
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
            events.publish(if number % 2 == 0 { BOB } else { ADA }, "call", json!(number));
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(watching.next().await.unwrap().number);
        }
        assert_eq!(seen, [1, 3, 5]);
        assert_eq!(events.watch(ADA, Some(1)).next().await.unwrap().number, 3);
        assert_eq!(events.watch(BOB, Some(4)).next().await.unwrap().number, 6);
        let (waits, publish) = (watching.next(), async { events.publish(ADA, "server", json!({})) });
        let (event, ()) = tokio::join!(waits, publish);
        assert_eq!((event.unwrap().number, 7), (7, 7));
    }

    #[tokio::test]
    async fn what_is_forgotten_is_said_to_be() {
        let events = Events::default();
        let mut slow = events.watch(ADA, None);
        for number in 0..=REMEMBERED {
            events.publish(ADA, "call", json!(number));
        }
        assert_eq!(slow.next().await, Err(Missed));
        let number = REMEMBERED as u64 + 1;
        events.publish(ADA, "call", json!("next"));
        assert_eq!(slow.next().await.unwrap().number, number + 1);
        assert_eq!(events.watch(ADA, Some(number + 100)).next().await, Err(Missed), "of another run");
        assert_eq!(events.watch(ADA, Some(2)).next().await.unwrap().number, 3);
    }
}
