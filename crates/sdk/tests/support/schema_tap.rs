//! Transport from a client to a server over pipes that records all messages and validates those of both sides
//! against the schemas.

use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use linchpin::client::RevisionCache;
use linchpin::transport::{OpenFuture, Transport, TransportHandle, Wire};
use linchpin::{Client, ClientBuilder, Revision, Service};
use serde_json::Value;
use spec_check::Conversation;

use super::{Clock, runtime};

/// Transport to one server. Clones share the record.
#[derive(Clone)]
pub(crate) struct SchemaTap {
    service: Service,
    heard: Arc<Mutex<TapRecord>>,
}

#[derive(Default)]
struct TapRecord {
    /// Messages from the view of the client, and of the server.
    client: Conversation,
    server: Conversation,
    /// All messages in order, each with whether the client sent it.
    messages: Vec<(bool, Value)>,
    faults: Vec<String>,
}

impl SchemaTap {
    pub(crate) fn new(service: &Service) -> Self {
        SchemaTap { service: service.clone(), heard: Arc::default() }
    }

    /// Creates a client with one revision over this transport.
    pub(crate) fn client(&self, revision: Revision) -> ClientBuilder {
        Client::over(self.clone()).revision_cache(RevisionCache::new()).revisions([revision])
    }

    /// Returns the messages sent and received by the client since the last call.
    pub(crate) fn messages(&self) -> (Vec<Value>, Vec<Value>) {
        let mut heard = self.heard.lock().unwrap();
        assert_eq!(heard.faults, Vec::<String>::new(), "invalid in its revision");
        let (sent, received): (Vec<_>, Vec<_>) = heard.messages.drain(..).partition(|(sent, _)| *sent);
        let values = |all: Vec<(bool, Value)>| all.into_iter().map(|(_, message)| message).collect();
        (values(sent), values(received))
    }

    fn record(&self, line: &str, sent: bool) {
        let TapRecord { client, server, messages, faults } = &mut *self.heard.lock().unwrap();
        let (from, to) = if sent { (client, server) } else { (server, client) };
        from.record_sent(line);
        faults.extend(to.check_received(line).err());
        messages.push((sent, serde_json::from_str(line).unwrap()));
    }
}

/// Returns the messages of a method.
pub(crate) fn of<'a>(messages: &'a [Value], method: &str) -> Vec<&'a Value> {
    messages.iter().filter(|message| message["method"] == method).collect()
}

impl Transport for SchemaTap {
    fn open(&self, wire: Wire) -> OpenFuture<'_> {
        let (input, ours) = pipe().unwrap();
        let (answers, output) = pipe().unwrap();
        let service = self.service.clone();
        std::thread::spawn(move || runtime(Clock::Real).block_on(service.run_on(input, output)).unwrap());
        let to_server = Arc::new(Mutex::new(Some(ours)));
        let (tap, up, outgoing) = (self.clone(), to_server.clone(), wire.clone());
        wire.on_outgoing(move || {
            let mut up = up.lock().unwrap(); // held while lines are written, so that they stay in order
            let mut lines = Vec::new();
            outgoing.take_outgoing(&mut lines);
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                tap.record(std::str::from_utf8(line).unwrap(), true);
            }
            // A server that has ended does not read any more.
            let _ = up.as_mut().map(|up| up.write_all(&lines));
        });
        let tap = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                tap.record(&line, false);
                wire.receive(line.as_bytes());
            }
            wire.report_closed("the server has ended");
        });
        let line: Box<dyn TransportHandle> = Box::new(TapLine(to_server));
        Box::pin(std::future::ready(Ok(line)))
    }

    fn name(&self) -> String {
        "a server behind a tap".to_owned()
    }
}

struct TapLine(Arc<Mutex<Option<PipeWriter>>>);

impl TransportHandle for TapLine {
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
