//! One test, on every revision and every way to the server.

use std::any::Any;
use std::fmt;
use std::thread;
use std::time::Duration;

use linchpin_protocol::{Era, Revision};

use super::streams::piped;
use crate::Service;
use crate::client::{Client, ClientBuilder, Eras};
use crate::transport::Transport;
use crate::transport::memory::Memory;

/// How long one case may take. Only a test that hangs takes that long.
const LIMIT: Duration = Duration::from_mins(1);

/// How the messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Within the process.
    Memory,
    /// Over pipes of the operating system, to a server on a thread and a runtime of its own.
    Stdio,
    /// Over HTTP on this machine, to a server on a thread and a runtime of its own: HTTP+SSE in the first revision,
    /// Streamable HTTP from then on.
    #[cfg(all(feature = "http-client", feature = "http-server"))]
    Http,
}

impl Way {
    /// All that the features of this build have.
    const ALL: &[Way] = &[
        Way::Memory,
        Way::Stdio,
        #[cfg(all(feature = "http-client", feature = "http-server"))]
        Way::Http,
    ];
}

/// What becomes of a handler while the client is asked something in the stateless era.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounds {
    /// It waits, and goes on when the answer comes.
    Park,
    /// It is given up, and begins anew with the answers.
    Replay,
}

/// One combination.
#[derive(Clone)]
pub struct Case {
    service: Service,
    revision: Revision,
    way: Way,
    rounds: Rounds,
}

impl Case {
    /// The revision that is spoken.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How the messages travel.
    pub fn transport(&self) -> Way {
        self.way
    }

    /// What becomes of handlers that ask.
    pub fn rounds(&self) -> Rounds {
        self.rounds
    }

    /// The way to the server, to be wrapped by another one.
    pub fn to_server(&self) -> Box<dyn Transport> {
        match self.way {
            Way::Memory => Box::new(Memory(self.service.clone())),
            Way::Stdio => Box::new(piped(&self.service)),
            #[cfg(all(feature = "http-client", feature = "http-server"))]
            Way::Http => Box::new(super::site::site(&self.service, self.revision)),
        }
    }

    /// A client that speaks this revision only, and remembers nothing.
    pub fn client(&self) -> ClientBuilder {
        self.client_over(self.to_server())
    }

    /// As [`Self::client`], over a transport that wraps [`Self::to_server`].
    pub fn client_over(&self, transport: impl Transport) -> ClientBuilder {
        Client::over(transport).revisions([self.revision]).eras(Eras::new())
    }
}

/// For messages: the revision, the way, and the rounds where they matter.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::Memory => "in memory",
            Way::Stdio => "over stdio",
            #[cfg(all(feature = "http-client", feature = "http-server"))]
            Way::Http => "over HTTP",
        };
        write!(f, "{} {way}", self.revision)?;
        match (self.revision.era(), self.rounds) {
            (Era::Stateless, Rounds::Park) => f.write_str(", parked"),
            (Era::Stateless, Rounds::Replay) => f.write_str(", replayed"),
            (Era::Session, _) => Ok(()),
        }
    }
}

/// What a test can end with: nothing, or a result whose error is shown.
pub trait Verdict {
    /// Why the test failed, if it did.
    fn failure(self) -> Option<String>;
}

impl Verdict for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: fmt::Display> Verdict for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:#}"))
    }
}

/// Runs a test on every revision that the server speaks, over every transport, and where the revision makes a
/// difference with handlers that wait for answers and with handlers that begin anew.
///
/// Each case has a thread and a runtime of its own, in real time. All are run; the failing ones are named in one
/// panic at the end.
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
    Fut: Future<Output: Verdict>,
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
        for way in Way::ALL.iter().copied() {
            let case = Case { service: service.clone(), revision, way, rounds: Rounds::Park };
            if revision.era() == Era::Stateless {
                let service = service.without_parking();
                cases.push(Case { service, rounds: Rounds::Replay, ..case.clone() });
            }
            cases.push(case);
        }
    }
    cases
}

/// Runs one case; gives what went wrong.
fn run<Fut>(case: &Case, test: &(impl Fn(Case) -> Fut + Sync)) -> Option<String>
where
    Fut: Future<Output: Verdict>,
{
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(format!("there is no runtime: {error}")),
    };
    let work = || {
        runtime
            .block_on(async { tokio::time::timeout(LIMIT, test(case.clone())).await.map(Verdict::failure) })
    };
    // A thread with the name of the case: that is where the panic's own message says it happened.
    let ended = thread::scope(|scope| {
        match thread::Builder::new().name(case.to_string()).spawn_scoped(scope, work) {
            Ok(running) => running.join(),
            Err(error) => Ok(Ok(Some(format!("there is no thread: {error}")))),
        }
    });
    match ended {
        Ok(Ok(failure)) => failure,
        Ok(Err(_)) => Some(format!("it did not end within {LIMIT:?}")),
        Err(panic) => Some(message(&*panic)),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}
