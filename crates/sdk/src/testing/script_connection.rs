//! Connection of a client to a scripted server: receives messages and performs the reactions.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};

use linchpin_jsonrpc::{FramedLine as Framed, LineBuffer};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::reaction::{Reaction, ReactionStep};
use super::script::Script;
use crate::lock::lock;
use crate::server::spawn;
use crate::transport::memory::deliver_all;
use crate::transport::{TransportHandle, Wire};

/// Connection of a client to a scripted server.
struct ScriptConnection {
    script: Script,
    wire: Wire,
    runtime: Handle,
    /// Lock held while messages of the client are passed on, so that they stay in order.
    outgoing_lock: Mutex<()>,
    output: Mutex<VecDeque<ScriptOutput>>,
    /// Buffer of output lines, locked while output is passed on: a client that responds at once calls back into this
    /// connection.
    line_buffer: Mutex<LineBuffer>,
}

enum ScriptOutput {
    Bytes(Vec<u8>),
    End(String),
}

/// Connects a client to a scripted server.
pub(super) fn open(script: Script, wire: Wire, first: Reaction) -> Box<dyn TransportHandle> {
    let line_buffer = Mutex::new(LineBuffer::new(wire.max_message()));
    let (outgoing_lock, output, runtime) = (Mutex::new(()), Mutex::default(), Handle::current());
    let connection = Arc::new(ScriptConnection { script, wire, runtime, outgoing_lock, output, line_buffer });
    connection.clone().run_steps(Value::Null, first.into_steps());
    let upstream = Arc::downgrade(&connection);
    connection
        .wire
        .on_outgoing(move || upstream.upgrade().into_iter().for_each(|connection| connection.receive_all()));
    Box::new(ScriptHandle(connection))
}

impl ScriptConnection {
    fn receive_all(self: &Arc<Self>) {
        let (has_messages, take) =
            (|| self.wire.has_outgoing(), |lines: &mut Vec<u8>| self.wire.take_outgoing(lines));
        deliver_all(has_messages, take, &self.outgoing_lock, |message| {
            // Valid clients write JSON; other output is recorded as text.
            let text = || Value::from(String::from_utf8_lossy(message).into_owned());
            let message = serde_json::from_slice(message).unwrap_or_else(|_| text());
            self.script.record(&message);
            let steps = self.script.reaction(&message).into_steps();
            self.clone().run_steps(message["id"].clone(), steps);
        });
    }

    fn run_steps(self: Arc<Self>, id: Value, mut steps: VecDeque<ReactionStep>) {
        while let Some(step) = steps.pop_front() {
            let output = match step {
                ReactionStep::Response(kind, body) => {
                    let response = json!({ "jsonrpc": "2.0", "id": id, kind: body });
                    ScriptOutput::Bytes(format!("{response}\n").into_bytes())
                }
                ReactionStep::Bytes(bytes) => ScriptOutput::Bytes(bytes),
                ReactionStep::Close(reason) => ScriptOutput::End(reason),
                ReactionStep::Wait(time) => {
                    let runtime = self.runtime.clone();
                    return spawn(&runtime, async move {
                        tokio::time::sleep(time).await;
                        self.run_steps(id, steps);
                    });
                }
            };
            lock(&self.output).push_back(output);
            self.deliver_output();
        }
    }

    fn deliver_output(&self) {
        while !lock(&self.output).is_empty() {
            let mut line_buffer = match self.line_buffer.try_lock() {
                Ok(line_buffer) => line_buffer,
                Err(TryLockError::Poisoned(line_buffer)) => line_buffer.into_inner(),
                Err(TryLockError::WouldBlock) => return, // the holder of the lock passes this on, too
            };
            let next = lock(&self.output).pop_front();
            match next {
                Some(ScriptOutput::Bytes(bytes)) => self.split_lines(&bytes, &mut line_buffer),
                Some(ScriptOutput::End(reason)) => {
                    if let Some(line) = line_buffer.last_line() {
                        self.wire.receive(line);
                    }
                    self.wire.report_closed(&reason);
                }
                None => {}
            }
        }
    }

    fn split_lines(&self, mut bytes: &[u8], line_buffer: &mut LineBuffer) {
        while !bytes.is_empty() && !self.wire.is_ended() {
            let space = line_buffer.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            line_buffer.advance(count);
            bytes = &bytes[count..];
            while let Some(line) = line_buffer.next_line() {
                match line {
                    Framed::Complete(line) => self.wire.receive(line),
                    Framed::TooLong => self.wire.too_long(),
                }
            }
        }
    }
}

struct ScriptHandle(Arc<ScriptConnection>);

impl TransportHandle for ScriptHandle {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.wire.report_closed("the client closed the connection");
        Box::pin(std::future::ready(()))
    }
}

impl Drop for ScriptHandle {
    fn drop(&mut self) {
        self.0.wire.report_closed("the client closed the connection");
    }
}
