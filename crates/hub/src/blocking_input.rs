//! Blocking reads from standard input and files, on a separate thread. A read may never return, and must not prevent
//! the process from exiting.

use std::io;

/// Runs a blocking read on a new thread. If the returned future is dropped, the thread stays blocked until the
/// process exits.
pub(crate) async fn read_on_thread(
    read: impl FnOnce() -> io::Result<String> + Send + 'static,
) -> io::Result<String> {
    let (sender, text) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(read()); // the receiver may be gone
    });
    text.await.unwrap_or_else(|_| Ok(String::new()))
}

/// Reads one line from standard input.
pub(crate) async fn read_line() -> io::Result<String> {
    read_on_thread(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    })
    .await
}

/// Reads a file, which may be a pipe.
pub(crate) async fn read_file(path: &str) -> io::Result<String> {
    let path = path.to_owned();
    read_on_thread(move || std::fs::read_to_string(path)).await
}
