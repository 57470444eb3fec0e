//! Upstream server that tests can block and observe.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use linchpin::{NoArgs, Server, args};
use tokio::sync::Notify;

#[args]
struct Say {
    /// Message to repeat
    message: String,
}

/// Notifies when it is dropped before the work is done.
struct NotifyUnlessDone {
    is_done: bool,
    notify: Arc<Notify>,
}

impl Drop for NotifyUnlessDone {
    fn drop(&mut self) {
        if !self.is_done {
            self.notify.notify_one();
        }
    }
}

/// Creates the server. It counts tool executions, records the messages of `echo`, notifies when `wait` starts or is cancelled, and waits for `go_on`.
pub(crate) fn upstream(
    ran: &Arc<AtomicUsize>,
    echoed: &Arc<Mutex<Vec<String>>>,
    begun: &Arc<Notify>,
    go_on: &Arc<Notify>,
    given_up: &Arc<Notify>,
) -> Server {
    let (counted, waited, begun, go_on) = (ran.clone(), ran.clone(), begun.clone(), go_on.clone());
    let (echoed, given_up) = (echoed.clone(), given_up.clone());
    Server::new("upstream", "1")
        .tool("echo", "Says it back", move |Say { message }| {
            counted.fetch_add(1, Ordering::SeqCst);
            echoed.lock().unwrap().push(message.clone());
            async move { message }
        })
        .tool("wait", "Waits", move |_: NoArgs| {
            let (begun, go_on, waited) = (begun.clone(), go_on.clone(), waited.clone());
            let told = given_up.clone();
            async move {
                let mut unless = NotifyUnlessDone { is_done: false, notify: told };
                begun.notify_one();
                go_on.notified().await;
                waited.fetch_add(1, Ordering::SeqCst);
                unless.is_done = true;
                "done"
            }
        })
        .resource("memory://a", "a", || async { "the resource" })
        .prompt("greet", "Greets", |Say { message }| async move { format!("Say {message}") })
}
