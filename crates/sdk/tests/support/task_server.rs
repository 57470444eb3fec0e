//! A server whose tools run as tasks, and wait until the test lets them continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::model::TaskSupport;
use linchpin::{Context, Error, NoArgs, Result, Server, Tool, args};
use tokio::sync::Semaphore;

#[args]
pub(crate) struct Name {
    pub(crate) name: String,
}

#[args]
pub(crate) struct Age {
    pub(crate) age: u32,
}

/// Controls and counters of the tools.
#[derive(Clone)]
pub(crate) struct TaskControls {
    /// Each permit lets one call of `slow` finish.
    pub(crate) gate: Arc<Semaphore>,
    /// Number of running calls of `slow`.
    pub(crate) alive: Arc<AtomicUsize>,
}

struct RunningGuard(Arc<AtomicUsize>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TaskControls {
    pub(crate) fn new() -> Self {
        TaskControls { gate: Arc::new(Semaphore::new(0)), alive: Arc::default() }
    }

    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    async fn slow(self, cx: Context) -> Result<String> {
        self.alive.fetch_add(1, Ordering::SeqCst);
        let _alive = RunningGuard(self.alive.clone());
        cx.progress((1.0, 2.0, "half"));
        self.gate.acquire().await?.forget();
        Ok("done at last".into())
    }

    pub(crate) fn server(&self) -> Server {
        let (optional, required) = (self.clone(), self.clone());
        let optional = move |_: NoArgs, cx: Context| optional.clone().slow(cx);
        let required = move |_: NoArgs, cx: Context| required.clone().slow(cx);
        Server::new("works", "1")
            .tool("plain", "", || async { "plain" })
            .add(Tool::new("quick").task(TaskSupport::Optional).handler(|| async { "quick" }))
            .add(Tool::new("slow").task(TaskSupport::Optional).handler(optional))
            .add(Tool::new("must").task(TaskSupport::Required).handler(|| async { "must" }))
            .add(Tool::new("must_slow").task(TaskSupport::Required).handler(required))
            .add(Tool::new("ask").task(TaskSupport::Required).handler(ask))
            .add(
                Tool::new("fails")
                    .task(TaskSupport::Required)
                    .handler(|| async { Result::<String>::Err(Error::tool("no luck")) }),
            )
            .add(
                Tool::new("breaks")
                    .task(TaskSupport::Required)
                    .handler(|| async { Result::<String>::Err(Error::rpc(-31_000, "broken")) }),
            )
    }
}

/// Two input requests at once, and one after them.
async fn ask(_: NoArgs, cx: Context) -> Result<String> {
    let (name, age) = tokio::join!(cx.elicit::<Name>("Who are you?"), cx.elicit::<Age>("How old are you?"));
    let (name, age) = (name?.name, age?.age);
    let friend = cx.elicit::<Name>("Who is your friend?").await?.name;
    Ok(format!("{name} is {age} and knows {friend}"))
}
