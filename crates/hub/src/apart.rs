//! Reading what may never come, on a thread of its own: the program must be able to end meanwhile.

use std::io;

/// What is read. Whoever waits no longer leaves the thread behind, which ends with the program.
pub(crate) async fn apart(read: impl FnOnce() -> io::Result<String> + Send + 'static) -> io::Result<String> {
    let (sender, text) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(read()); // nobody may wait any longer
    });
    text.await.unwrap_or_else(|_| Ok(String::new()))
}

/// A line that somebody types.
pub(crate) async fn line() -> io::Result<String> {
    apart(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    })
    .await
}

/// The text of a file, which may be a pipe.
pub(crate) async fn file(path: &str) -> io::Result<String> {
    let path = path.to_owned();
    apart(move || std::fs::read_to_string(path)).await
}
