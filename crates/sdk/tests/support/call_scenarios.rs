//! A server with a tool for each event in the life of a call, and controls for tests.
#![cfg(feature = "http-server")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::model::LogLevel;
use linchpin::{Context, NoArgs, Result, Server, Tool, args};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, Semaphore};

use super::live_counter::LiveCounter;

#[args]
pub(crate) struct Echo {
    pub(crate) message: String,
}

#[args]
pub(crate) struct Name {
    pub(crate) name: String,
}

#[args]
pub(crate) struct Count {
    pub(crate) count: u32,
}

#[derive(Clone)]
pub(crate) struct CallControls {
    /// Each permit lets a call of `wait` continue by one step.
    pub(crate) gate: Arc<Semaphore>,
    /// Number of running calls of `wait`.
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) changed: Arc<Notify>,
    /// Number of finished calls.
    pub(crate) finished: Arc<AtomicUsize>,
}

/// Notifies when a call is dropped.
struct DropNotifier(Arc<Notify>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl CallControls {
    pub(crate) fn new() -> Self {
        CallControls {
            gate: Arc::new(Semaphore::new(0)),
            running: Arc::default(),
            changed: Arc::default(),
            finished: Arc::default(),
        }
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    /// Lets calls of `wait` continue.
    pub(crate) fn step(&self, count: usize) {
        self.gate.add_permits(count);
    }

    /// Waits until this many calls are running.
    pub(crate) async fn until_alive(&self, count: usize) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.running() == count {
                return;
            }
            changed.await;
        }
    }

    /// Reports progress after each step.
    pub(crate) async fn wait(self, steps: u32, cx: Context) -> Result<String> {
        let gone = DropNotifier(self.changed.clone());
        let alive = LiveCounter::new(&self.running);
        self.changed.notify_waiters();
        for step in 1..=steps {
            self.gate.acquire().await?.forget();
            if step < steps {
                cx.progress(f64::from(step));
            }
        }
        self.finished.fetch_add(1, Ordering::SeqCst);
        drop(alive);
        drop(gone);
        Ok(format!("{steps} steps"))
    }

    /// Releases the stream, and finishes after a step.
    async fn leave(self, cx: Context) -> Result<String> {
        cx.close_stream(Duration::from_secs(3));
        self.wait(1, cx).await
    }

    pub(crate) fn server(&self) -> Server {
        let (wait, leave) = (self.clone(), self.clone());
        let region = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }});
        Server::new("scene", "1")
            .tool("echo", "", |Echo { message }| async move { message })
            .tool("wait", "", move |Count { count }, cx: Context| wait.clone().wait(count, cx))
            .tool("leave", "", move |_: NoArgs, cx: Context| leave.clone().leave(cx))
            .tool("talk", "", |Count { count }, cx: Context| async move {
                for step in 1..=count {
                    cx.progress(f64::from(step));
                }
                "talked"
            })
            .tool("log", "", |_: NoArgs, cx: Context| async move {
                cx.log(LogLevel::Warning, "careful");
                "logged"
            })
            .tool("ask", "", |_: NoArgs, cx: Context| async move {
                Ok::<_, linchpin::Error>(cx.elicit::<Name>("Who?").await?.name)
            })
            .tool("think", "", |_: NoArgs, cx: Context| async move {
                let thought = cx.sample("Why?").await?;
                Ok::<_, linchpin::Error>(thought.model)
            })
            .tool("roots", "", |_: NoArgs, cx: Context| async move {
                Ok::<_, linchpin::Error>(format!("{} roots", cx.roots().await?.len()))
            })
            .tool("fails", "", |_: NoArgs| async {
                Result::<String>::Err(linchpin::Error::rpc(-31_000, "no"))
            })
            .tool("remember", "", |Echo { message }, cx: Context| async move {
                let session = cx.session()?;
                let before = session.get::<String>().map_or_else(String::new, |before| before.to_string());
                session.set(message);
                Ok::<_, linchpin::Error>(before)
            })
            .tool(
                "who",
                "",
                |_: NoArgs, cx: Context| async move { cx.principal().unwrap_or("nobody").to_owned() },
            )
            .add(Tool::raw("region", region).handler(|_: Map<String, Value>| async { "there" }))
            .resource("memo://one", "one", || async { "the memo" })
            .resource("memo://größe", "size", || async { "groß" })
    }
}
