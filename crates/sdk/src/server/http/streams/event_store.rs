//! Event store for resumable streams: a client whose stream was cut gets the events that it missed.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::lock::lock;
use crate::server::BoxFuture;
use crate::server::http::sessions::id::SessionKey;

/// Message that was sent on a resumable SSE stream, as stored with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Number of the event in its stream, increasing by one.
    pub number: u64,
    /// Message of the event, as JSON.
    pub message: Box<[u8]>,
}

/// Store of the events sent on SSE streams, from which a client that lost its stream resumes. The default is a bounded
/// store in memory; a shared store lets a client resume at another instance of the server.
pub trait EventStore: Send + Sync + 'static {
    /// Stores an event of an SSE stream, so that clients can resume after it. Called before the event is sent; must not
    /// block.
    fn store(&self, session: &SessionKey, stream: u32, event: StoredEvent);

    /// Returns the stored events of an SSE stream after `number`, in order. Events that are no longer stored are
    /// omitted; the caller detects the gap by their numbers.
    fn load_after(&self, session: &SessionKey, stream: u32, number: u64) -> BoxFuture<Vec<StoredEvent>>;

    /// Deletes the events of a session that has ended.
    fn delete(&self, session: &SessionKey);
}

/// Maximum number of stored events of one session.
const MAX_SESSION_EVENTS: usize = 16_384;
/// Maximum size of the stored stream events of all sessions together, in bytes.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Bytes accounted for each event in addition to its message.
const EVENT_OVERHEAD_BYTES: usize = 64;

/// Event store of resumable streams in memory. The oldest events are dropped first.
#[derive(Default)]
pub(in crate::server::http) struct MemoryEventStore(Mutex<MemoryState>);

#[derive(Default)]
struct MemoryState {
    sessions: HashMap<SessionKey, VecDeque<EventEntry>>,
    /// All events by age: the session and the serial number of the event.
    order: VecDeque<(SessionKey, u64)>,
    serial: u64,
    count: usize,
    bytes: usize,
}

struct EventEntry {
    serial: u64,
    stream: u32,
    event: StoredEvent,
}

impl MemoryState {
    fn add(&mut self, session: SessionKey, stream: u32, event: StoredEvent) {
        self.serial += 1;
        self.count += 1;
        self.bytes += event.message.len() + EVENT_OVERHEAD_BYTES;
        let entries = self.sessions.entry(session).or_default();
        entries.push_back(EventEntry { serial: self.serial, stream, event });
        self.order.push_back((session, self.serial));
        if entries.len() > MAX_SESSION_EVENTS {
            self.drop_oldest_event(session);
        }
        while self.bytes > MAX_TOTAL_BYTES
            && let Some((session, serial)) = self.order.pop_front()
        {
            let oldest = self.sessions.get(&session).and_then(|entries| entries.front());
            if oldest.is_some_and(|oldest| oldest.serial == serial) {
                self.drop_oldest_event(session);
            }
        }
        // Compact: remove entries of events that were dropped for other reasons.
        if self.order.len() > 4_096 && self.order.len() > 2 * self.count {
            let sessions = &self.sessions;
            self.order.retain(|(session, serial)| {
                let oldest = sessions.get(session).and_then(|entries| entries.front());
                oldest.is_some_and(|oldest| oldest.serial <= *serial)
            });
        }
    }

    fn drop_oldest_event(&mut self, session: SessionKey) {
        let Some(entries) = self.sessions.get_mut(&session) else { return };
        if let Some(dropped) = entries.pop_front() {
            self.count -= 1;
            self.bytes -= dropped.event.message.len() + EVENT_OVERHEAD_BYTES;
        }
        if entries.is_empty() {
            self.sessions.remove(&session);
        }
    }
}

impl EventStore for MemoryEventStore {
    fn store(&self, session: &SessionKey, stream: u32, event: StoredEvent) {
        lock(&self.0).add(*session, stream, event);
    }

    fn load_after(&self, session: &SessionKey, stream: u32, number: u64) -> BoxFuture<Vec<StoredEvent>> {
        let state = lock(&self.0);
        let entries = state.sessions.get(session).into_iter().flatten();
        let missed = entries.filter(|entry| entry.stream == stream && entry.event.number > number);
        Box::pin(std::future::ready(missed.map(|entry| entry.event.clone()).collect()))
    }

    fn delete(&self, session: &SessionKey) {
        let mut state = lock(&self.0);
        if let Some(entries) = state.sessions.remove(session) {
            state.count -= entries.len();
            state.bytes -=
                entries.iter().map(|entry| entry.event.message.len() + EVENT_OVERHEAD_BYTES).sum::<usize>();
        }
        if state.sessions.is_empty() {
            state.order = VecDeque::new();
            state.sessions.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, size: usize) -> StoredEvent {
        StoredEvent { number, message: vec![b'x'; size].into() }
    }

    async fn numbers(memory: &MemoryEventStore, key: &SessionKey, stream: u32, after: u64) -> Vec<u64> {
        memory.load_after(key, stream, after).await.iter().map(|event| event.number).collect()
    }

    #[tokio::test]
    async fn a_stream_gets_what_it_missed_and_nothing_of_others() {
        let (memory, own, foreign) =
            (MemoryEventStore::default(), SessionKey::random(), SessionKey::random());
        for number in 1..=3 {
            memory.store(&own, 1, event(number, 1));
            memory.store(&own, 2, event(number, 1));
            memory.store(&foreign, 1, event(number, 1));
        }
        assert_eq!(numbers(&memory, &own, 1, 1).await, [2, 3]);
        memory.delete(&foreign);
        assert!(numbers(&memory, &foreign, 1, 0).await.is_empty());
        assert_eq!(numbers(&memory, &own, 2, 0).await, [1, 2, 3]);
    }

    #[tokio::test]
    async fn it_is_bounded_by_count_and_by_bytes() {
        let (memory, key) = (MemoryEventStore::default(), SessionKey::random());
        for number in 1..=MAX_SESSION_EVENTS as u64 + 10 {
            memory.store(&key, 0, event(number, 1));
        }
        assert_eq!(numbers(&memory, &key, 0, 0).await.first(), Some(&11));
        let big = SessionKey::random();
        for number in 1..=3 {
            memory.store(&big, 0, event(number, MAX_TOTAL_BYTES / 2));
        }
        assert!(lock(&memory.0).bytes <= MAX_TOTAL_BYTES);
        assert_eq!(numbers(&memory, &big, 0, 0).await, [3]);
        assert!(numbers(&memory, &key, 0, 0).await.is_empty(), "the oldest are dropped first");
        memory.delete(&big);
        let state = lock(&memory.0);
        assert_eq!((state.bytes, state.count, state.order.len()), (0, 0, 0));
    }
}
