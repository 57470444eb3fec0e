//! Delay queue for one direction of a connection: a delayed message also delays the later ones, as on a real
//! connection. Only `push_after_next` changes the order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::lock::lock;
use crate::server::spawn;

/// How long a reordered message waits for the next one.
const REORDER_TIMEOUT: Duration = Duration::from_secs(2);

type Deliver = Box<dyn Fn(&[u8]) + Send + Sync>;

pub(super) struct DelayQueue {
    runtime: Handle,
    deliver: Deliver,
    state: Mutex<DelayState>,
}

#[derive(Default)]
struct DelayState {
    /// Delayed messages with the time at which each may be delivered.
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// Whether a task is delivering the delayed messages of the queue.
    is_draining: bool,
    /// A message to deliver after the next one, with its number.
    reordered: Option<(u64, Vec<u8>)>,
    last_reordered: u64,
}

impl DelayQueue {
    pub(super) fn new(runtime: &Handle, deliver: impl Fn(&[u8]) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(DelayQueue { runtime: runtime.clone(), deliver: Box::new(deliver), state: Mutex::default() })
    }

    /// Queues a message for delivery after `delay`.
    pub(super) fn push(self: &Arc<Self>, message: Vec<u8>, delay: Duration) {
        {
            let mut state = lock(&self.state);
            let due = Instant::now() + delay;
            let due = state.queue.back().map_or(due, |(last, _)| due.max(*last));
            state.queue.push_back((due, message));
            if let Some((_, reordered_message)) = state.reordered.take() {
                state.queue.push_back((due, reordered_message));
            }
            if std::mem::replace(&mut state.is_draining, true) {
                return;
            }
        }
        self.clone().drain();
    }

    /// Queues a message for delivery after the next one.
    pub(super) fn push_after_next(self: &Arc<Self>, message: Vec<u8>) {
        let mut state = lock(&self.state);
        if state.reordered.is_some() {
            drop(state);
            return self.push(message, Duration::ZERO);
        }
        state.last_reordered += 1;
        let number = state.last_reordered;
        state.reordered = Some((number, message));
        let queue = self.clone();
        spawn(&self.runtime, async move {
            tokio::time::sleep(REORDER_TIMEOUT).await;
            let reordered_message = {
                let mut state = lock(&queue.state);
                state.reordered.take_if(|(reordered, _)| *reordered == number)
            };
            if let Some((_, message)) = reordered_message {
                queue.push(message, Duration::ZERO);
            }
        });
    }

    /// Delivers all delayed messages that are due, and schedules the rest.
    fn drain(self: Arc<Self>) {
        loop {
            let message = {
                let mut state = lock(&self.state);
                match state.queue.front() {
                    None => {
                        state.is_draining = false;
                        return;
                    }
                    Some((due, _)) if *due > Instant::now() => {
                        let due = *due;
                        drop(state);
                        let runtime = self.runtime.clone();
                        return spawn(&runtime, async move {
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
