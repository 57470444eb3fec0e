//! Calls that wait for answers between two requests: bounded in number and in age, and each answer is kept for a
//! while, in case it got lost on the way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::connection::Invocation;
use crate::sync::lock;

/// Answers larger than this are not kept.
const MAX_KEPT: usize = 256 << 10;

/// The calls that a server holds.
#[derive(Default)]
pub(crate) struct Parking(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: HashMap<u128, Slot>,
    /// Oldest first; some may be gone already.
    order: VecDeque<(u128, Instant)>,
}

struct Slot {
    round: u32,
    call: Held,
    /// The answer to an earlier round.
    kept: Option<(u32, Arc<[u8]>)>,
    changed: Arc<Notify>,
    since: Instant,
}

enum Held {
    Waiting(Box<Invocation>),
    /// A request has taken it up.
    Running,
    /// It ended.
    Done,
}

/// What a request with a state finds.
pub(crate) enum Found {
    /// The call, which is the finder's now.
    Call(Box<Invocation>),
    /// The answer that was given before.
    Answer(Arc<[u8]>),
    /// Somebody else has the call: look again when notified.
    Busy(Arc<Notify>),
    /// The state is of an earlier round.
    Stale,
    /// Nothing is held.
    Nothing,
}

impl Parking {
    /// Holds a call until its next request comes.
    pub(crate) fn park(&self, id: u128, round: u32, call: Invocation, most: usize, age: Duration) {
        let mut table = lock(&self.0);
        table.clear_old(age);
        if most == 0 {
            return;
        }
        while table.slots.len() >= most && !table.slots.contains_key(&id) {
            let Some((oldest, _)) = table.order.pop_front() else { break };
            if table.slots.remove(&oldest).is_some() {
                tracing::warn!("a call that waited for answers was let go to make room for another");
            }
        }
        let since = Instant::now();
        table.order.push_back((id, since));
        let before = table.slots.remove(&id);
        let kept = before.as_ref().and_then(|slot| slot.kept.clone());
        let changed = before.map_or_else(Arc::default, |slot| slot.changed);
        changed.notify_waiters();
        table.slots.insert(id, Slot { round, call: Held::Waiting(Box::new(call)), kept, changed, since });
    }

    /// Notes that a call that was not held is being done again.
    pub(crate) fn claim(&self, id: u128, round: u32, most: usize) {
        let mut table = lock(&self.0);
        if table.slots.len() < most {
            let since = Instant::now();
            table.order.push_back((id, since));
            let slot = Slot { round, call: Held::Running, kept: None, changed: Arc::default(), since };
            table.slots.insert(id, slot);
        }
    }

    /// Takes up a call.
    pub(crate) fn take(&self, id: u128, round: u32, age: Duration) -> Found {
        let mut table = lock(&self.0);
        table.clear_old(age);
        let Some(slot) = table.slots.get_mut(&id) else { return Found::Nothing };
        if let Some((kept, answer)) = &slot.kept
            && *kept == round
        {
            return Found::Answer(answer.clone());
        }
        if slot.round != round {
            return Found::Stale;
        }
        match std::mem::replace(&mut slot.call, Held::Running) {
            Held::Waiting(call) => Found::Call(call),
            Held::Running => Found::Busy(slot.changed.clone()),
            Held::Done => {
                slot.call = Held::Done;
                Found::Stale
            }
        }
    }

    /// Keeps the answer to a round that was taken up, in case it gets lost.
    pub(crate) fn keep(&self, id: u128, round: u32, answer: &[u8], done: bool) {
        let mut table = lock(&self.0);
        let Some(slot) = table.slots.get_mut(&id) else { return };
        slot.kept = (answer.len() <= MAX_KEPT).then(|| (round, answer.into()));
        if done {
            slot.call = Held::Done;
        }
        slot.changed.notify_waiters();
    }

    /// A call that was taken up ended without an answer.
    pub(crate) fn drop_call(&self, id: u128) {
        if let Some(slot) = lock(&self.0).slots.remove(&id) {
            slot.changed.notify_waiters();
        }
    }
}

impl Table {
    fn clear_old(&mut self, age: Duration) {
        while let Some((id, since)) = self.order.front()
            && since.elapsed() > age
        {
            // The same call may have been parked again since.
            if self.slots.get(id).is_some_and(|slot| slot.since == *since) {
                self.slots.remove(id);
            }
            self.order.pop_front();
        }
    }
}
