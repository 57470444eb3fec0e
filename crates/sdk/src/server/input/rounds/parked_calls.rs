//! Table of the calls that are parked between two requests, limited in number and age. Each response is cached for a
//! while, in case it is lost in transit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;
use crate::server::connection::Invocation;
use crate::server::definitions::tool::ToolEntry;
use crate::server::spawn::spawn;

/// Maximum size of a cached response to an earlier round trip, in bytes.
const MAX_CACHED_BYTES: usize = 256 << 10;

/// Parked calls of a server: they wait for input that comes with the client's next request.
#[derive(Default)]
pub(crate) struct ParkedCalls(Mutex<ParkedTable>);

#[derive(Default)]
struct ParkedTable {
    slots: HashMap<u128, Slot>,
    /// Ids of the parked calls with the time at which they were parked, oldest first.
    order: VecDeque<(u128, Instant)>,
    /// Whether the task that evicts expired calls is running.
    has_sweeper: bool,
}

struct Slot {
    round: u32,
    call: ParkedState,
    /// Encoded response to the last answered request of the call, sent again if the client repeats that request.
    cached: Option<CachedResponse>,
    changed: Arc<Notify>,
}

/// Encoded response to the last answered request of a call with several round trips. It is stored in case it is lost:
/// it is sent again if the client repeats that request.
#[derive(Clone)]
pub(crate) struct CachedResponse {
    round: u32,
    pub(crate) response: Arc<[u8]>,
    /// Tool that produced the response. A client that receives it again must have the scopes of this tool.
    pub(crate) tool: Option<Arc<ToolEntry>>,
}

enum ParkedState {
    Waiting(Box<Invocation>),
    /// A request is running the call.
    Running,
    /// The parked call has ended; at most its cached response is left.
    Done,
}

/// Result of taking a parked call to resume it: the call, its cached response, or why neither is available.
pub(crate) enum TakeOutcome {
    /// The parked call, now owned by the retry request.
    Call(Box<Invocation>),
    /// The cached response to an earlier request with the same state.
    Cached(CachedResponse),
    /// Another request is running the call: look it up again when notified.
    Busy(Arc<Notify>),
    /// The request state belongs to an earlier round trip.
    Stale,
    /// The parked call is not in this process.
    NotFound,
}

impl ParkedCalls {
    /// Parks a call until its next request arrives.
    pub(crate) fn park(
        self: &Arc<Self>,
        id: u128,
        round: u32,
        call: Invocation,
        limit: usize,
        age: Duration,
    ) {
        let mut evicted = Vec::new(); // declared before the lock, so dropped after it: dropping a handler may run any code
        let mut table = lock(&self.0);
        evicted.extend(table.evict_expired(age));
        if limit == 0 || table.slots.get(&id).is_some_and(|slot| slot.round >= round) {
            evicted.push(Slot::new(round, ParkedState::Waiting(Box::new(call))));
            return;
        }
        let before = table.remove(id);
        evicted.extend(table.evict_excess(limit));
        let mut slot = Slot::new(round, ParkedState::Waiting(Box::new(call)));
        if let Some(before) = before {
            (slot.cached, slot.changed) = (before.cached, before.changed);
        }
        slot.changed.notify_waiters();
        table.insert(id, slot);
        if !table.has_sweeper
            && let Ok(runtime) = Handle::try_current()
        {
            table.has_sweeper = true;
            spawn(&runtime, sweep(SweeperGuard(Arc::downgrade(self)), age));
        }
    }

    /// Records that a call that is not parked in this process is being replayed. Returns `false` if another request was
    /// faster.
    pub(crate) fn claim_replay(&self, id: u128, round: u32, limit: usize) -> bool {
        let mut evicted = Vec::new();
        let mut table = lock(&self.0);
        if table.slots.contains_key(&id) {
            return false;
        }
        if limit > 0 {
            evicted.extend(table.evict_excess(limit));
            table.insert(id, Slot::new(round, ParkedState::Running));
        }
        true
    }

    /// Takes a parked call out of the table, to resume it with a retry request.
    pub(crate) fn take(&self, id: u128, round: u32, age: Duration) -> TakeOutcome {
        let mut evicted = Vec::new();
        let mut table = lock(&self.0);
        evicted.extend(table.evict_expired(age));
        let Some(slot) = table.slots.get_mut(&id) else { return TakeOutcome::NotFound };
        if slot.round < round {
            evicted.extend(table.remove(id)); // it continued on another instance
            return TakeOutcome::NotFound;
        }
        if let Some(cached) = slot.cached.as_ref().filter(|cached| cached.round == round) {
            return TakeOutcome::Cached(cached.clone());
        }
        if slot.round != round {
            return TakeOutcome::Stale;
        }
        match std::mem::replace(&mut slot.call, ParkedState::Running) {
            ParkedState::Waiting(call) => TakeOutcome::Call(call),
            ParkedState::Running => TakeOutcome::Busy(slot.changed.clone()),
            ParkedState::Done => {
                slot.call = ParkedState::Done;
                TakeOutcome::Stale
            }
        }
    }

    /// Parks a call again that was taken and could not be resumed.
    pub(crate) fn put_back(&self, id: u128, round: u32, call: Invocation) {
        let mut call = Some(Box::new(call));
        let mut table = lock(&self.0);
        if let Some(slot) = table.find(id, round)
            && let Some(call) = call.take()
        {
            slot.call = ParkedState::Waiting(call);
            slot.changed.notify_waiters();
        }
    }

    /// Caches the response of a round trip, in case it is lost in transit.
    pub(crate) fn cache_response(
        &self,
        id: u128,
        round: u32,
        response: &[u8],
        tool: Option<&Arc<ToolEntry>>,
        done: bool,
    ) {
        let mut table = lock(&self.0);
        let Some(slot) = table.find(id, round) else { return };
        let cached = || CachedResponse { round, response: response.into(), tool: tool.cloned() };
        slot.cached = (response.len() <= MAX_CACHED_BYTES).then(cached);
        if done {
            slot.call = ParkedState::Done;
        }
        slot.changed.notify_waiters();
    }

    /// Discards the parked state of a call that ended without a response. Its state is used up, unless it may be
    /// replayed.
    pub(crate) fn drop_call(&self, id: u128, round: u32, may_replay: bool) {
        let mut table = lock(&self.0);
        let found = table.find(id, round).is_some();
        let evicted = if may_replay && found { table.remove(id) } else { None };
        if let Some(slot) = table.find(id, round) {
            slot.call = ParkedState::Done;
            slot.changed.notify_waiters();
        }
        drop(table);
        if let Some(slot) = evicted {
            slot.changed.notify_waiters();
        }
    }

    /// Drops all parked calls of the server.
    pub(crate) fn clear(&self) {
        let mut table = lock(&self.0);
        table.order.clear();
        let evicted = std::mem::take(&mut table.slots);
        drop(table); // before the calls: dropping a handler may run any code
        drop(evicted);
    }

    /// Evicts expired parked calls. Returns the time at which the oldest remaining call was parked.
    fn sweep(&self, age: Duration) -> Option<Instant> {
        let mut evicted = Vec::new();
        let mut table = lock(&self.0);
        evicted.extend(table.evict_expired(age));
        let oldest = table.order.front().map(|(_, since)| *since);
        table.has_sweeper = oldest.is_some();
        oldest
    }
}

impl Slot {
    fn new(round: u32, call: ParkedState) -> Self {
        Slot { round, call, cached: None, changed: Arc::default() }
    }
}

impl ParkedTable {
    fn insert(&mut self, id: u128, slot: Slot) {
        self.order.push_back((id, Instant::now()));
        self.slots.insert(id, slot);
    }

    fn remove(&mut self, id: u128) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.order.retain(|(other, _)| *other != id);
        Some(slot)
    }

    /// Returns the call with this id if it is in the round trip `round`.
    fn find(&mut self, id: u128, round: u32) -> Option<&mut Slot> {
        self.slots.get_mut(&id).filter(|slot| slot.round == round)
    }

    fn evict_excess(&mut self, limit: usize) -> Vec<Slot> {
        let mut evicted = Vec::new();
        while self.slots.len() >= limit && !self.order.is_empty() {
            // Ended calls are evicted first: only a cached response is lost.
            let has_ended = |(id, _): &(u128, Instant)| {
                self.slots.get(id).is_none_or(|slot| matches!(slot.call, ParkedState::Done))
            };
            let ended_position = self.order.iter().position(has_ended);
            if ended_position.is_none() {
                tracing::debug!("discarded a call that waits for input of the client: too many calls wait");
            }
            let oldest = self.order.remove(ended_position.unwrap_or(0));
            evicted.extend(oldest.and_then(|(id, _)| self.slots.remove(&id)));
        }
        evicted
    }

    fn evict_expired(&mut self, age: Duration) -> Vec<Slot> {
        let mut evicted = Vec::new();
        while let Some((id, since)) = self.order.front()
            && since.elapsed() > age
        {
            evicted.extend(self.slots.remove(id));
            self.order.pop_front();
        }
        evicted
    }
}

/// Evicts expired calls in the background, because parked calls hold the resources of their handlers.
async fn sweep(guard: SweeperGuard, age: Duration) {
    while let Some(oldest) = guard.0.upgrade().and_then(|parked_calls| parked_calls.sweep(age)) {
        tokio::time::sleep_until(oldest + age + Duration::from_millis(1)).await;
    }
}

/// Guard of the background task that evicts expired parked calls. However it ends, the next parked call starts it
/// again.
struct SweeperGuard(Weak<ParkedCalls>);

impl Drop for SweeperGuard {
    fn drop(&mut self) {
        if let Some(parked_calls) = self.0.upgrade() {
            lock(&parked_calls.0).has_sweeper = false;
        }
    }
}
