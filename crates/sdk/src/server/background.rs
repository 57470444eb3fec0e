//! The one place that starts background work. Everything started here has an end: calls are cancelled
//! when the peer is gone, tasks when their time is over, and the rest is short.

use tokio::runtime::Handle;
#[cfg(feature = "http-client")]
use tokio::task::AbortHandle;

/// Starts `work` on `runtime`.
#[expect(clippy::disallowed_methods, reason = "this is where tracked work is started")]
pub(crate) fn start(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(work);
}

/// Starts `work` on `runtime`, to be ended early by what comes back.
#[cfg(feature = "http-client")]
#[expect(clippy::disallowed_methods, reason = "this is where tracked work is started")]
pub(crate) fn start_abortable(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    runtime.spawn(work).abort_handle()
}
