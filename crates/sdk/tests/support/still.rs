//! A clock that moves only when a test moves it, for clients and servers on real sockets.

use std::sync::mpsc;
use std::time::Duration;

/// How long a test may take. Only one that fails does; then the clock goes on.
const PATIENCE: Duration = Duration::from_secs(20);

/// The clock stands for as long as this is kept.
pub(crate) struct Still(#[expect(dead_code, reason = "dropping it is what counts")] mpsc::SyncSender<()>);

impl Still {
    /// A paused clock moves by itself whenever the runtime only waits, for bytes as well, unless something blocks.
    pub(crate) fn stand() -> Self {
        let (kept, end) = mpsc::sync_channel(1);
        tokio::time::pause();
        drop(tokio::task::spawn_blocking(move || {
            if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                tokio::time::resume();
            }
        }));
        Still(kept)
    }

    /// Lets so much time pass, and a little more, since timers count whole milliseconds.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time + Duration::from_millis(1)).await;
    }
}
