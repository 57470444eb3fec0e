//! Connection to a script: receives messages of the client and performs the reactions.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};

use linchpin_jsonrpc::{Line as Framed, LineBuffer};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::reaction::{Reaction, Step};
use super::script::Script;
use crate::lock::lock;
use crate::server::start;
use crate::transport::memory::carry;
use crate::transport::{Line, Wire};

/// A connection to a script.
struct Stage {
    script: Script,
    wire: Wire,
    runtime: Handle,
    /// Held while messages of the client are passed on, so that they stay in order.
    turn: Mutex<()>,
    output: Mutex<VecDeque<Output>>,
    /// Held while output is passed on: a client that responds at once calls back into this connection.
    cutter: Mutex<LineBuffer>,
}

enum Output {
    Bytes(Vec<u8>),
    End(String),
}

/// Connects a client to a script.
pub(super) fn open(script: Script, wire: Wire, first: Reaction) -> Box<dyn Line> {
    let cutter = Mutex::new(LineBuffer::new(wire.max_message()));
    let (turn, output, runtime) = (Mutex::new(()), Mutex::default(), Handle::current());
    let stage = Arc::new(Stage { script, wire, runtime, turn, output, cutter });
    stage.clone().perform(Value::Null, first.into_steps());
    let upstream = Arc::downgrade(&stage);
    stage.wire.on_outgoing(move || upstream.upgrade().into_iter().for_each(|stage| stage.carry_up()));
    Box::new(StageLine(stage))
}

impl Stage {
    fn carry_up(self: &Arc<Self>) {
        let (has, take) = (|| self.wire.has_outgoing(), |lines: &mut Vec<u8>| self.wire.take(lines));
        carry(has, take, &self.turn, |message| {
            // Valid clients write JSON; other output is recorded as text.
            let text = || Value::from(String::from_utf8_lossy(message).into_owned());
            let message = serde_json::from_slice(message).unwrap_or_else(|_| text());
            self.script.note(&message);
            let steps = self.script.reaction(&message).into_steps();
            self.clone().perform(message["id"].clone(), steps);
        });
    }

    fn perform(self: Arc<Self>, id: Value, mut steps: VecDeque<Step>) {
        while let Some(step) = steps.pop_front() {
            let output = match step {
                Step::Answer(kind, body) => {
                    let answer = json!({ "jsonrpc": "2.0", "id": id, kind: body });
                    Output::Bytes(format!("{answer}\n").into_bytes())
                }
                Step::Bytes(bytes) => Output::Bytes(bytes),
                Step::Close(reason) => Output::End(reason),
                Step::Wait(time) => {
                    let runtime = self.runtime.clone();
                    return start(&runtime, async move {
                        tokio::time::sleep(time).await;
                        self.perform(id, steps);
                    });
                }
            };
            lock(&self.output).push_back(output);
            self.carry_down();
        }
    }

    fn carry_down(&self) {
        while !lock(&self.output).is_empty() {
            let mut cutter = match self.cutter.try_lock() {
                Ok(cutter) => cutter,
                Err(TryLockError::Poisoned(cutter)) => cutter.into_inner(),
                Err(TryLockError::WouldBlock) => return, // the holder of the lock passes this on, too
            };
            let next = lock(&self.output).pop_front();
            match next {
                Some(Output::Bytes(bytes)) => self.cut(&bytes, &mut cutter),
                Some(Output::End(reason)) => {
                    if let Some(line) = cutter.last_line() {
                        self.wire.receive(line);
                    }
                    self.wire.ended(&reason);
                }
                None => {}
            }
        }
    }

    fn cut(&self, mut bytes: &[u8], cutter: &mut LineBuffer) {
        while !bytes.is_empty() && !self.wire.is_ended() {
            let space = cutter.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            cutter.filled(count);
            bytes = &bytes[count..];
            while let Some(line) = cutter.next_line() {
                match line {
                    Framed::Complete(line) => self.wire.receive(line),
                    Framed::TooLong => self.wire.too_long(),
                }
            }
        }
    }
}

struct StageLine(Arc<Stage>);

impl Line for StageLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.wire.ended("closed by the client");
        Box::pin(std::future::ready(()))
    }
}

impl Drop for StageLine {
    fn drop(&mut self) {
        self.0.wire.ended("closed by the client");
    }
}
