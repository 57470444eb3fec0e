//! Transport from a client to a server over pipes that records all messages and validates those of both sides
//! against the schemas.

use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use linchpin::client::Eras;
use linchpin::transport::{Line, Opening, Transport, Wire};
use linchpin::{Client, ClientBuilder, Revision, Service};
use serde_json::Value;
use spec_check::Transcript;

use super::{Clock, runtime};

/// Transport to one server. Clones share the record.
#[derive(Clone)]
pub(crate) struct Tap {
    service: Service,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    /// Messages from the view of the client, and of the server.
    client: Transcript,
    server: Transcript,
    /// All messages in order, each with whether the client sent it.
    messages: Vec<(bool, Value)>,
    faults: Vec<String>,
}

impl Tap {
    pub(crate) fn new(service: &Service) -> Self {
        Tap { service: service.clone(), heard: Arc::default() }
    }

    /// Creates a client with one revision over this transport.
    pub(crate) fn client(&self, revision: Revision) -> ClientBuilder {
        Client::over(self.clone()).eras(Eras::new()).revisions([revision])
    }

    /// Returns the messages sent and received by the client since the last call.
    pub(crate) fn messages(&self) -> (Vec<Value>, Vec<Value>) {
        let mut heard = self.heard.lock().unwrap();
        assert_eq!(heard.faults, Vec::<String>::new(), "invalid in its revision");
        let (sent, received): (Vec<_>, Vec<_>) = heard.messages.drain(..).partition(|(sent, _)| *sent);
        let values = |all: Vec<(bool, Value)>| all.into_iter().map(|(_, message)| message).collect();
        (values(sent), values(received))
    }

    fn note(&self, line: &str, sent: bool) {
        let Heard { client, server, messages, faults } = &mut *self.heard.lock().unwrap();
        let (from, to) = if sent { (client, server) } else { (server, client) };
        from.sent(line);
        faults.extend(to.received(line).err());
        messages.push((sent, serde_json::from_str(line).unwrap()));
    }
}

/// Returns the messages of a method.
pub(crate) fn of<'a>(messages: &'a [Value], method: &str) -> Vec<&'a Value> {
    messages.iter().filter(|message| message["method"] == method).collect()
}

impl Transport for Tap {
    fn open(&self, wire: Wire) -> Opening<'_> {
        let (input, ours) = pipe().unwrap();
        let (answers, output) = pipe().unwrap();
        let service = self.service.clone();
        std::thread::spawn(move || runtime(Clock::Real).block_on(service.run_on(input, output)).unwrap());
        let to_server = Arc::new(Mutex::new(Some(ours)));
        let (tap, up, outgoing) = (self.clone(), to_server.clone(), wire.clone());
        wire.on_outgoing(move || {
            let mut up = up.lock().unwrap(); // held while lines are written, so that they stay in order
            let mut lines = Vec::new();
            outgoing.take(&mut lines);
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                tap.note(std::str::from_utf8(line).unwrap(), true);
            }
            // A server that has ended does not read any more.
            let _ = up.as_mut().map(|up| up.write_all(&lines));
        });
        let tap = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                tap.note(&line, false);
                wire.receive(line.as_bytes());
            }
            wire.ended("the server has ended");
        });
        let line: Box<dyn Line> = Box::new(TapLine(to_server));
        Box::pin(std::future::ready(Ok(line)))
    }

    fn name(&self) -> String {
        "a server behind a tap".to_owned()
    }
}

struct TapLine(Arc<Mutex<Option<PipeWriter>>>);

impl Line for TapLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        drop(self.0.lock().unwrap().take());
        Box::pin(std::future::ready(()))
    }
}

impl Drop for TapLine {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap().take());
    }
}
