//! Transport that records all messages between a client and a server, for tests.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::interceptor::{self, Endpoints, Interceptor};
use crate::lock::lock;
use crate::transport::{Direction, Transport, TransportHandle, Wire};

/// Test transport that records the messages passing through another one. Clones share the record. Ids start at 1 on
/// each connection, so the same conversation produces the same text.
#[derive(Clone)]
pub struct Transcript {
    transport: Arc<dyn Transport>,
    lines: Arc<Mutex<Vec<(Direction, String)>>>,
}

impl Transcript {
    /// Creates a transport that records the messages of `transport`.
    pub fn new(transport: impl Transport) -> Self {
        Transcript { transport: Arc::new(transport), lines: Arc::default() }
    }

    /// Returns the recorded messages so far, without newlines. Invalid UTF-8 is replaced.
    pub fn lines(&self) -> Vec<(Direction, String)> {
        lock(&self.lines).clone()
    }
}

/// Formats one message per line, with an arrow.
impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (direction, line) in &*lock(&self.lines) {
            writeln!(f, "{direction} {line}")?;
        }
        Ok(())
    }
}

impl Transport for Transcript {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>> {
        let lines = self.lines.clone();
        Box::pin(interceptor::open(&*self.transport, wire, move |sides| Recorder { endpoints: sides, lines }))
    }

    fn name(&self) -> String {
        self.transport.name()
    }
}

struct Recorder {
    endpoints: Arc<Endpoints>,
    lines: Arc<Mutex<Vec<(Direction, String)>>>,
}

impl Recorder {
    fn record(&self, direction: Direction, message: &[u8]) {
        lock(&self.lines).push((direction, String::from_utf8_lossy(message).into_owned()));
    }
}

impl Interceptor for Recorder {
    fn on_sent(&self, message: &[u8]) {
        self.record(Direction::Sent, message);
        self.endpoints.to_server(message);
    }

    fn on_received(&self, message: &[u8]) {
        self.record(Direction::Received, message);
        self.endpoints.to_client(message);
    }
}
