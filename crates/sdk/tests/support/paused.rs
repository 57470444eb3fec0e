//! Time that passes by itself, and takes none.

use std::time::Duration;

/// Lets `time` pass, which with a paused clock happens as soon as nothing else is to be done. Panics where the clock
/// runs: no test waits.
pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::advance(Duration::ZERO).await;
        tokio::time::sleep(time).await;
    }
}
