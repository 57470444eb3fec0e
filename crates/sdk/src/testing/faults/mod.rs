//! Fault injection: a transport that loses, delays, duplicates, reorders and corrupts messages, and cuts
//! connections, as determined by a seed.

mod delay_queue;
mod plan;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use self::delay_queue::DelayQueue;
pub use self::plan::{Fault, FaultRates};
use super::Direction;
use super::interceptor::{self, Endpoints, Interceptor};
use super::random::Random;
use crate::lock::lock;
use crate::transport::{Transport, TransportHandle, Wire};

/// Reason reported to the client when the connection was cut.
const CUT_REASON: &str = "the connection was cut by fault injection";

/// A transport that injects faults into the messages of another one, in both directions. Clones share the random
/// numbers and the log.
///
/// The same seed produces the same faults for the same messages: on a single-threaded runtime with a paused clock, a
/// whole scenario is reproducible.
///
/// ```
/// use linchpin::testing::{FaultRates, Faults, in_memory};
/// use linchpin::{Client, NoArgs, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let service = Server::new("demo", "1").tool("hello", "", |_: NoArgs| async { "Hello!" }).build().unwrap();
/// let faults = Faults::new(in_memory(&service), 7).rates(FaultRates { duplicate: 1_000, ..FaultRates::NONE });
/// let client = Client::over(faults.clone()).connect().await.unwrap();
/// client.call("hello", ()).await.unwrap();
/// assert!(faults.log().iter().all(|event| event.to_string().contains("twice")));
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a transport is connected to with `Client::over`"]
pub struct Faults {
    transport: Arc<dyn Transport>,
    rates: FaultRates,
    state: Arc<Mutex<FaultState>>,
}

struct FaultState {
    random: Random,
    log: Vec<FaultEvent>,
    started_at: Option<Instant>,
}

/// Record of a fault that the fault injection applied to one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultEvent {
    /// Time since the first connection at which the fault was injected.
    pub at: Duration,
    /// Direction of the message.
    pub direction: Direction,
    /// The injected fault.
    pub fault: Fault,
    /// Message as it was before the fault.
    pub message: String,
}

impl fmt::Display for FaultEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultEvent { at, direction, fault, message } = self;
        write!(f, "{:>9.3}s {direction} {fault}: {message}", at.as_secs_f64())
    }
}

impl Faults {
    /// Creates a transport that injects faults into another one; `seed` determines the faults.
    pub fn new(transport: impl Transport, seed: u64) -> Self {
        let state = FaultState { random: Random::new(seed), log: Vec::new(), started_at: None };
        let state = Arc::new(Mutex::new(state));
        Faults { transport: Arc::new(transport), rates: FaultRates::default(), state }
    }

    /// Sets how often each kind of fault is injected.
    pub fn rates(mut self, rates: FaultRates) -> Self {
        self.rates = rates;
        self
    }

    /// Returns the faults that were injected so far.
    pub fn log(&self) -> Vec<FaultEvent> {
        lock(&self.state).log.clone()
    }

    /// Returns whether fault injection has cut a connection.
    pub fn has_cut_connection(&self) -> bool {
        lock(&self.state).log.iter().any(|event| event.fault == Fault::Cut)
    }

    fn decide(&self, direction: Direction, message: &[u8]) -> Fault {
        let mut state = lock(&self.state);
        let fault = self.rates.decide(&mut state.random, message.len());
        let at = state.started_at.map(|started_at| started_at.elapsed()).unwrap_or_default();
        let message = String::from_utf8_lossy(message).into_owned();
        state.log.push(FaultEvent { at, direction, fault: fault.clone(), message });
        fault
    }
}

impl Transport for Faults {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>> {
        lock(&self.state).started_at.get_or_insert_with(Instant::now);
        Box::pin(interceptor::open(&*self.transport, wire, |sides| {
            let runtime = Handle::current();
            let (server_side, client_side) = (sides.clone(), sides.clone());
            let to_server = DelayQueue::new(&runtime, move |message| server_side.to_server(message));
            let to_client = DelayQueue::new(&runtime, move |message| client_side.to_client(message));
            FaultInjector { faults: self.clone(), endpoints: sides, to_server, to_client }
        }))
    }

    fn name(&self) -> String {
        self.transport.name()
    }
}

/// Fault injector between the client and the server of one test connection.
struct FaultInjector {
    faults: Faults,
    endpoints: Arc<Endpoints>,
    to_server: Arc<DelayQueue>,
    to_client: Arc<DelayQueue>,
}

impl FaultInjector {
    fn inject(&self, direction: Direction, queue: &Arc<DelayQueue>, message: &[u8]) {
        if self.endpoints.is_ended() {
            return; // in transit when the connection was cut
        }
        match self.faults.decide(direction, message) {
            Fault::None => queue.push(message.to_vec(), Duration::ZERO),
            Fault::Delay(time) => queue.push(message.to_vec(), time),
            Fault::Drop => {}
            Fault::Duplicate => {
                queue.push(message.to_vec(), Duration::ZERO);
                queue.push(message.to_vec(), Duration::ZERO);
            }
            Fault::Reorder => queue.push_after_next(message.to_vec()),
            Fault::Corrupt { at, byte } => {
                let mut message = message.to_vec();
                message[at] = byte;
                queue.push(message, Duration::ZERO);
            }
            Fault::Truncate(length) => queue.push(message[..length].to_vec(), Duration::ZERO),
            Fault::Noise(noise) => {
                queue.push(noise.as_bytes().to_vec(), Duration::ZERO);
                queue.push(message.to_vec(), Duration::ZERO);
            }
            Fault::Cut => self.endpoints.close(CUT_REASON),
        }
    }
}

impl Interceptor for FaultInjector {
    fn on_sent(&self, message: &[u8]) {
        self.inject(Direction::Sent, &self.to_server, message);
    }

    fn on_received(&self, message: &[u8]) {
        self.inject(Direction::Received, &self.to_client, message);
    }
}
