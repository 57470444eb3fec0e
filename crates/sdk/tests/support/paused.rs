//! Waiting with a paused clock, which takes no real time.

use std::time::Duration;

/// Waits for `time`, which with a paused clock passes as soon as nothing else is to be done. Panics with a running
/// clock: no test waits.
pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::advance(Duration::ZERO).await;
        tokio::time::sleep(time).await;
    }
}
