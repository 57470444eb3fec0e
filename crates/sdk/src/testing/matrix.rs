//! Test matrix: one test on every revision and every transport.

use std::any::Any;
use std::fmt;
use std::thread;
use std::time::Duration;

use linchpin_protocol::{Era, Revision};

use super::streams::piped;
use crate::Service;
use crate::client::{Client, ClientBuilder, RevisionCache};
use crate::transport::Transport;
use crate::transport::memory::Memory;

/// Timeout of one test case of the matrix. Only a hanging test reaches it.
const CASE_TIMEOUT: Duration = Duration::from_mins(1);

/// Transport between client and server of a test case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// Transport in memory, within one process.
    Memory,
    /// Over operating system pipes, to a server on its own thread and runtime.
    Stdio,
    /// Over HTTP on this machine, to a server on its own thread and runtime: HTTP+SSE in the first revision,
    /// Streamable HTTP in all others.
    #[cfg(all(feature = "http-client", feature = "http-server"))]
    Http,
}

impl TransportKind {
    /// All transports that the features of this build provide.
    const ALL: &[TransportKind] = &[
        TransportKind::Memory,
        TransportKind::Stdio,
        #[cfg(all(feature = "http-client", feature = "http-server"))]
        TransportKind::Http,
    ];
}

/// How the server of a test case treats a handler that waits for input in the stateless era.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputMode {
    /// The handler waits, and continues when the input arrives.
    Park,
    /// The handler is dropped, and runs again with the input.
    Replay,
}

/// Test case of the matrix: one combination of revision, transport and input mode.
#[derive(Clone)]
pub struct Case {
    service: Service,
    revision: Revision,
    transport: TransportKind,
    rounds: InputMode,
}

impl Case {
    /// Returns the protocol revision of the test case.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the transport of the test case.
    pub fn transport(&self) -> TransportKind {
        self.transport
    }

    /// Returns how the test case handles calls that wait for input: parked or replayed.
    pub fn rounds(&self) -> InputMode {
        self.rounds
    }

    /// Returns the transport to the server of the test case, for wrapping it in another one.
    pub fn to_server(&self) -> Box<dyn Transport> {
        match self.transport {
            TransportKind::Memory => Box::new(Memory(self.service.clone())),
            TransportKind::Stdio => Box::new(piped(&self.service)),
            #[cfg(all(feature = "http-client", feature = "http-server"))]
            TransportKind::Http => {
                Box::new(super::http_server::start_http_server(&self.service, self.revision))
            }
        }
    }

    /// Creates a client builder for this revision only, with an empty revision cache.
    pub fn client(&self) -> ClientBuilder {
        self.client_over(self.to_server())
    }

    /// Creates a client builder like [`Self::client`], over a transport that wraps [`Self::to_server`].
    pub fn client_over(&self, transport: impl Transport) -> ClientBuilder {
        Client::over(transport).revisions([self.revision]).revision_cache(RevisionCache::new())
    }
}

/// Formats the case for messages: revision, transport and, in the stateless era, the round mode.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            TransportKind::Memory => "in memory",
            TransportKind::Stdio => "over stdio",
            #[cfg(all(feature = "http-client", feature = "http-server"))]
            TransportKind::Http => "over HTTP",
        };
        write!(f, "{} {transport}", self.revision)?;
        match (self.revision.era(), self.rounds) {
            (Era::Stateless, InputMode::Park) => f.write_str(", parked"),
            (Era::Stateless, InputMode::Replay) => f.write_str(", replayed"),
            (Era::Session, _) => Ok(()),
        }
    }
}

/// Return type of a test function: `()`, or a result whose error is shown.
pub trait TestOutcome {
    /// Returns why the test failed, if it did.
    fn failure(self) -> Option<String>;
}

impl TestOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: fmt::Display> TestOutcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:#}"))
    }
}

/// Runs a test on every revision that the server supports, over every transport and, in the stateless era, with
/// parked and with replayed handlers.
///
/// Each case has its own thread and runtime, in real time. All cases are run; one panic at the end names the failed
/// ones.
///
/// ```
/// use linchpin::{NoArgs, Server, testing};
///
/// let service = Server::new("demo", "1").tool("hello", "", |_: NoArgs| async { "Hello!" }).build().unwrap();
/// testing::matrix(&service, |case| async move {
///     let client = case.client().connect().await.unwrap();
///     assert_eq!(client.revision(), case.revision());
///     client.call("hello", ()).await.unwrap();
/// });
/// ```
pub fn matrix<Fut>(service: &Service, test: impl Fn(Case) -> Fut + Sync)
where
    Fut: Future<Output: TestOutcome>,
{
    let cases = cases(service);
    let failed = |case: &Case| run(case, &test).map(|failure| format!("{case}: {failure}"));
    let failures: Vec<_> = cases.iter().filter_map(failed).collect();
    let (failed, all) = (failures.len(), cases.len());
    assert!(failures.is_empty(), "{failed} of {all} cases failed:\n  {}", failures.join("\n  "));
}

fn cases(service: &Service) -> Vec<Case> {
    let mut cases = Vec::new();
    for revision in service.settings().revisions.iter().copied() {
        for transport in TransportKind::ALL.iter().copied() {
            let case = Case { service: service.clone(), revision, transport, rounds: InputMode::Park };
            if revision.era() == Era::Stateless {
                let service = service.without_parking();
                cases.push(Case { service, rounds: InputMode::Replay, ..case.clone() });
            }
            cases.push(case);
        }
    }
    cases
}

/// Runs the test in one case of the matrix and returns the failure, if any.
fn run<Fut>(case: &Case, test: &(impl Fn(Case) -> Fut + Sync)) -> Option<String>
where
    Fut: Future<Output: TestOutcome>,
{
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(format!("failed to create a runtime: {error}")),
    };
    let work = || {
        runtime.block_on(async {
            tokio::time::timeout(CASE_TIMEOUT, test(case.clone())).await.map(TestOutcome::failure)
        })
    };
    // The thread is named after the case, so that the panic message names it.
    let outcome = thread::scope(|scope| {
        match thread::Builder::new().name(case.to_string()).spawn_scoped(scope, work) {
            Ok(running) => running.join(),
            Err(error) => Ok(Ok(Some(format!("failed to spawn a thread: {error}")))),
        }
    });
    match outcome {
        Ok(Ok(failure)) => failure,
        Ok(Err(_)) => Some(format!("timed out after {CASE_TIMEOUT:?}")),
        Err(panic) => Some(panic_message(&*panic)),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a message"))
}
