//! A record of what was said on the wire.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::between::{self, Between, Sides};
use crate::sync::lock;
use crate::transport::{Direction, Line, Transport, Wire};

/// A transport that writes down what passes through another one. Clones share the record. Ids are counted from 1
/// on each connection, so the same conversation gives the same text.
#[derive(Clone)]
pub struct Transcript {
    transport: Arc<dyn Transport>,
    lines: Arc<Mutex<Vec<(Direction, String)>>>,
}

impl Transcript {
    /// A record of what passes through `transport`.
    pub fn new(transport: impl Transport) -> Self {
        Transcript { transport: Arc::new(transport), lines: Arc::default() }
    }

    /// What was said so far, without newlines; bytes that are no UTF-8 are replaced.
    pub fn lines(&self) -> Vec<(Direction, String)> {
        lock(&self.lines).clone()
    }
}

/// One message per line, with an arrow.
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
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Line>>> + Send + 'a>> {
        let lines = self.lines.clone();
        Box::pin(between::open(&*self.transport, wire, move |sides| Recorder { sides, lines }))
    }

    fn name(&self) -> String {
        self.transport.name()
    }
}

struct Recorder {
    sides: Arc<Sides>,
    lines: Arc<Mutex<Vec<(Direction, String)>>>,
}

impl Recorder {
    fn note(&self, direction: Direction, message: &[u8]) {
        lock(&self.lines).push((direction, String::from_utf8_lossy(message).into_owned()));
    }
}

impl Between for Recorder {
    fn sent(&self, message: &[u8]) {
        self.note(Direction::Sent, message);
        self.sides.to_server(message);
    }

    fn received(&self, message: &[u8]) {
        self.note(Direction::Received, message);
        self.sides.to_client(message);
    }
}
