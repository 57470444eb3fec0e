//! A clock that advances only on request, for clients and servers on real sockets.

use std::sync::mpsc;
use std::time::Duration;

/// Timeout of a test. Only a failing one reaches it; then the clock runs again.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Guard that stops the clock.
pub(crate) struct ManualClock(#[expect(dead_code, reason = "held only for its drop")] mpsc::SyncSender<()>);

impl ManualClock {
    /// Stops the clock. A paused clock advances whenever the runtime only waits, even for bytes, unless a task
    /// blocks.
    pub(crate) fn stop() -> Self {
        let (kept, end) = mpsc::sync_channel(1);
        tokio::time::pause();
        drop(tokio::task::spawn_blocking(move || {
            if end.recv_timeout(TEST_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                tokio::time::resume();
            }
        }));
        ManualClock(kept)
    }

    /// Advances the clock by this time and a little more, since timers count whole milliseconds.
    pub(crate) async fn advance(&self, time: Duration) {
        tokio::time::advance(time + Duration::from_millis(1)).await;
    }
}
