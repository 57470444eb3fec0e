//! Delay queue for one direction of a connection: a delayed message also delays the later ones, as on a real
//! connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::lock::lock;
use crate::server::start;

/// How long a reordered message waits for the next one.
const HOLD: Duration = Duration::from_secs(2);

type Deliver = Box<dyn Fn(&[u8]) + Send + Sync>;

pub(super) struct Lane {
    runtime: Handle,
    deliver: Deliver,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Messages with the time at which each may be delivered.
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// Whether the queue is being drained.
    attended: bool,
    /// A message to deliver after the next one, with its number.
    held: Option<(u64, Vec<u8>)>,
    last_held: u64,
}

impl Lane {
    pub(super) fn new(runtime: &Handle, deliver: impl Fn(&[u8]) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Lane { runtime: runtime.clone(), deliver: Box::new(deliver), state: Mutex::default() })
    }

    /// Queues a message for delivery after `delay`.
    pub(super) fn put(self: &Arc<Self>, message: Vec<u8>, delay: Duration) {
        {
            let mut state = lock(&self.state);
            let due = Instant::now() + delay;
            let due = state.queue.back().map_or(due, |(last, _)| due.max(*last));
            state.queue.push_back((due, message));
            if let Some((_, held)) = state.held.take() {
                state.queue.push_back((due, held));
            }
            if std::mem::replace(&mut state.attended, true) {
                return;
            }
        }
        self.clone().drain();
    }

    /// Queues a message for delivery after the next one.
    pub(super) fn hold(self: &Arc<Self>, message: Vec<u8>) {
        let mut state = lock(&self.state);
        if state.held.is_some() {
            drop(state);
            return self.put(message, Duration::ZERO);
        }
        state.last_held += 1;
        let number = state.last_held;
        state.held = Some((number, message));
        let lane = self.clone();
        start(&self.runtime, async move {
            tokio::time::sleep(HOLD).await;
            let held = {
                let mut state = lock(&lane.state);
                state.held.take_if(|(held, _)| *held == number)
            };
            if let Some((_, message)) = held {
                lane.put(message, Duration::ZERO);
            }
        });
    }

    /// Delivers all due messages, and schedules the rest.
    fn drain(self: Arc<Self>) {
        loop {
            let message = {
                let mut state = lock(&self.state);
                match state.queue.front() {
                    None => {
                        state.attended = false;
                        return;
                    }
                    Some((due, _)) if *due > Instant::now() => {
                        let due = *due;
                        drop(state);
                        let runtime = self.runtime.clone();
                        return start(&runtime, async move {
                            tokio::time::sleep_until(due).await;
                            self.drain();
                        });
                    }
                    Some(_) => state.queue.pop_front(),
                }
            };
            if let Some((_, message)) = message {
                (self.deliver)(&message);
            }
        }
    }
}
