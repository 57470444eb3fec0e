//! Pauses of request timeouts, while the peer waits for this side.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Clock of the time in which request timeouts are paused.
#[derive(Default)]
pub(crate) struct PauseClock(Mutex<PauseState>);

#[derive(Default)]
struct PauseState {
    /// Number of active pauses.
    active: usize,
    /// Start of the current time with active pauses.
    since: Option<Instant>,
    /// Total length of earlier times with active pauses.
    earlier: Duration,
}

impl PauseClock {
    fn lock(&self) -> MutexGuard<'_, PauseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pause, which ends when the returned guard is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> TimeoutPause {
        let mut state = self.lock();
        state.active += 1;
        state.since.get_or_insert_with(Instant::now);
        TimeoutPause(self.clone())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.lock().active > 0
    }

    /// Returns the total time with active pauses.
    pub(crate) fn total(&self) -> Duration {
        let state = self.lock();
        state.earlier + state.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// Guard that pauses the timeouts of all pending requests of a peer until it is dropped.
pub struct TimeoutPause(Arc<PauseClock>);

impl Drop for TimeoutPause {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.active -= 1;
        if state.active == 0 {
            let ended = state.since.take().map(|since| since.elapsed());
            state.earlier += ended.unwrap_or_default();
        }
    }
}
