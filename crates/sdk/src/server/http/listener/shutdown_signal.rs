//! Signals that shut the server down: Ctrl-C and SIGTERM.

/// Completes when the process receives Ctrl-C or SIGTERM.
pub(in crate::server::http) async fn shutdown_signal() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminated) = signal(SignalKind::terminate()) else {
            let _ = interrupted.await; // without signal handling the process ends at once
            return;
        };
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await; // without signal handling the process ends at once
}
