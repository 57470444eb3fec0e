//! Spawning of background tasks, of servers and clients; no other module spawns any. Each task ends: calls are
//! cancelled when the peer disconnects, MCP tasks when their lifetime has expired, and the rest is short.

use tokio::runtime::Handle;
#[cfg(feature = "http-client")]
use tokio::task::AbortHandle;

/// Spawns a future as a task on `runtime`.
#[expect(clippy::disallowed_methods, reason = "the only place that spawns tasks")]
pub(crate) fn spawn(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(work);
}

/// Spawns a future as a task on `runtime` and returns a handle that aborts it.
#[cfg(feature = "http-client")]
#[expect(clippy::disallowed_methods, reason = "the only place that spawns tasks")]
pub(crate) fn spawn_abortable(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    runtime.spawn(work).abort_handle()
}
