//! Calls that wait for answers between two requests: bounded in number and in age, and each answer is kept for a
//! while, in case it got lost on the way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::background::start;
use super::super::connection::Invocation;
use super::super::tool::ToolEntry;
use crate::sync::lock;

/// Answers larger than this are not kept.
const MAX_KEPT: usize = 256 << 10;

/// The calls that a server holds.
#[derive(Default)]
pub(crate) struct Parking(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: HashMap<u128, Slot>,
    /// Oldest first.
    order: VecDeque<(u128, Instant)>,
    /// Whether somebody lets those go that have waited too long.
    swept: bool,
}

struct Slot {
    round: u32,
    call: Held,
    /// The answer to an earlier round.
    kept: Option<Kept>,
    changed: Arc<Notify>,
}

/// The answer to a round.
#[derive(Clone)]
pub(crate) struct Kept {
    round: u32,
    pub(crate) answer: Arc<[u8]>,
    /// The tool that gave it. A client that receives it again must have the scopes of this tool.
    pub(crate) tool: Option<Arc<ToolEntry>>,
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
    Answer(Kept),
    /// Somebody else has the call: look again when notified.
    Busy(Arc<Notify>),
    /// The state is of an earlier round.
    Stale,
    /// Nothing is held.
    Nothing,
}

impl Parking {
    /// Holds a call until its next request comes.
    pub(crate) fn park(self: &Arc<Self>, id: u128, round: u32, call: Invocation, most: usize, age: Duration) {
        let mut gone = Vec::new(); // before the lock: a handler that is let go may do anything
        let mut table = lock(&self.0);
        gone.extend(table.clear_old(age));
        if most == 0 || table.slots.get(&id).is_some_and(|slot| slot.round >= round) {
            gone.push(Slot::new(round, Held::Waiting(Box::new(call))));
            return;
        }
        let before = table.remove(id);
        gone.extend(table.make_room(most));
        let mut slot = Slot::new(round, Held::Waiting(Box::new(call)));
        if let Some(before) = before {
            (slot.kept, slot.changed) = (before.kept, before.changed);
        }
        slot.changed.notify_waiters();
        table.insert(id, slot);
        if !table.swept
            && let Ok(runtime) = Handle::try_current()
        {
            table.swept = true;
            start(&runtime, sweep(Sweeping(Arc::downgrade(self)), age));
        }
    }

    /// Notes that a call that was not held is being done again; `false` when somebody else was faster.
    pub(crate) fn claim(&self, id: u128, round: u32, most: usize) -> bool {
        let mut gone = Vec::new();
        let mut table = lock(&self.0);
        if table.slots.contains_key(&id) {
            return false;
        }
        if most > 0 {
            gone.extend(table.make_room(most));
            table.insert(id, Slot::new(round, Held::Running));
        }
        true
    }

    /// Takes up a call.
    pub(crate) fn take(&self, id: u128, round: u32, age: Duration) -> Found {
        let mut gone = Vec::new();
        let mut table = lock(&self.0);
        gone.extend(table.clear_old(age));
        let Some(slot) = table.slots.get_mut(&id) else { return Found::Nothing };
        if slot.round < round {
            gone.extend(table.remove(id)); // it has gone on elsewhere
            return Found::Nothing;
        }
        if let Some(kept) = slot.kept.as_ref().filter(|kept| kept.round == round) {
            return Found::Answer(kept.clone());
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

    /// Puts a call back that was taken up and could not go on.
    pub(crate) fn put_back(&self, id: u128, round: u32, call: Invocation) {
        let mut call = Some(Box::new(call));
        let mut table = lock(&self.0);
        if let Some(slot) = table.find(id, round)
            && let Some(call) = call.take()
        {
            slot.call = Held::Waiting(call);
            slot.changed.notify_waiters();
        }
    }

    /// Keeps the answer to a round that was taken up, in case it gets lost.
    pub(crate) fn keep(
        &self,
        id: u128,
        round: u32,
        answer: &[u8],
        tool: Option<&Arc<ToolEntry>>,
        done: bool,
    ) {
        let mut table = lock(&self.0);
        let Some(slot) = table.find(id, round) else { return };
        let kept = || Kept { round, answer: answer.into(), tool: tool.cloned() };
        slot.kept = (answer.len() <= MAX_KEPT).then(kept);
        if done {
            slot.call = Held::Done;
        }
        slot.changed.notify_waiters();
    }

    /// A call that was taken up ended without an answer. Its state is used up, unless it may be done `again`.
    pub(crate) fn drop_call(&self, id: u128, round: u32, again: bool) {
        let mut table = lock(&self.0);
        let found = table.find(id, round).is_some();
        let gone = if again && found { table.remove(id) } else { None };
        if let Some(slot) = table.find(id, round) {
            slot.call = Held::Done;
            slot.changed.notify_waiters();
        }
        drop(table);
        if let Some(slot) = gone {
            slot.changed.notify_waiters();
        }
    }

    /// Lets everything go.
    pub(crate) fn clear(&self) {
        let mut table = lock(&self.0);
        table.order.clear();
        let gone = std::mem::take(&mut table.slots);
        drop(table); // first: a handler that is let go may do anything
        drop(gone);
    }

    /// Lets those go that have waited too long. Gives the time since when the oldest of the others waits.
    fn sweep(&self, age: Duration) -> Option<Instant> {
        let mut gone = Vec::new();
        let mut table = lock(&self.0);
        gone.extend(table.clear_old(age));
        let oldest = table.order.front().map(|(_, since)| *since);
        table.swept = oldest.is_some();
        oldest
    }
}

impl Slot {
    fn new(round: u32, call: Held) -> Self {
        Slot { round, call, kept: None, changed: Arc::default() }
    }
}

impl Table {
    fn insert(&mut self, id: u128, slot: Slot) {
        self.order.push_back((id, Instant::now()));
        self.slots.insert(id, slot);
    }

    fn remove(&mut self, id: u128) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.order.retain(|(other, _)| *other != id);
        Some(slot)
    }

    /// A call that is in this round.
    fn find(&mut self, id: u128, round: u32) -> Option<&mut Slot> {
        self.slots.get_mut(&id).filter(|slot| slot.round == round)
    }

    fn make_room(&mut self, most: usize) -> Vec<Slot> {
        let mut gone = Vec::new();
        while self.slots.len() >= most && !self.order.is_empty() {
            // What has ended goes first: only an answer is kept for it.
            let has_ended = |(id, _): &(u128, Instant)| {
                self.slots.get(id).is_none_or(|slot| matches!(slot.call, Held::Done))
            };
            let ended = self.order.iter().position(has_ended);
            if ended.is_none() {
                tracing::debug!("a call that waited for answers was let go to make room for another");
            }
            let oldest = self.order.remove(ended.unwrap_or(0));
            gone.extend(oldest.and_then(|(id, _)| self.slots.remove(&id)));
        }
        gone
    }

    fn clear_old(&mut self, age: Duration) -> Vec<Slot> {
        let mut gone = Vec::new();
        while let Some((id, since)) = self.order.front()
            && since.elapsed() > age
        {
            gone.extend(self.slots.remove(id));
            self.order.pop_front();
        }
        gone
    }
}

/// Lets calls go that have waited too long, also when nothing else happens: they hold what their handlers hold.
async fn sweep(sweeping: Sweeping, age: Duration) {
    while let Some(oldest) = sweeping.0.upgrade().and_then(|parking| parking.sweep(age)) {
        tokio::time::sleep_until(oldest + age + Duration::from_millis(1)).await;
    }
}

/// However the sweeping ends, the next call that is held begins it again.
struct Sweeping(Weak<Parking>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(parking) = self.0.upgrade() {
            lock(&parking.0).swept = false;
        }
    }
}
