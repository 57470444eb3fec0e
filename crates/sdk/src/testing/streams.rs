//! Transport over pairs of blocking streams: real pipes within one process.

use std::io::{self, ErrorKind, Read, Write, pipe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use linchpin_jsonrpc::{FramedLine as Framed, LineBuffer};
use tokio::sync::watch;

use crate::Service;
use crate::transport::{Transport, TransportHandle, Wire};

type StreamPair = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// Test transport over a pair of blocking streams, one message per line. Each connection has a reading and a writing
/// thread.
///
/// The streams use real time: do not use it with tokio's paused clock.
pub struct StreamTransport {
    name: String,
    open: Box<dyn Fn() -> io::Result<StreamPair> + Send + Sync>,
}

impl StreamTransport {
    /// Creates a transport over byte streams. For each connection, `open` returns a new pair of streams: input to read
    /// from, and output to write to.
    pub fn new<R, W>(
        name: impl Into<String>,
        open: impl Fn() -> io::Result<(R, W)> + Send + Sync + 'static,
    ) -> Self
    where
        R: Read + Send + 'static,
        W: Write + Send + 'static,
    {
        let open = move || open().map(|(input, output)| (Box::new(input) as _, Box::new(output) as _));
        StreamTransport { name: name.into(), open: Box::new(open) }
    }
}

/// Returns a transport to a server that runs over operating system pipes, like over standard input and output, on a
/// thread with its own runtime.
pub fn piped(service: &Service) -> StreamTransport {
    let service = service.clone();
    let name = format!("{} over pipes ({:p})", service.settings().info.name, service.settings());
    StreamTransport::new(name, move || {
        let (input, to_server) = pipe()?;
        let (from_server, output) = pipe()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let service = service.clone();
        thread::Builder::new().name("linchpin-piped".into()).spawn(move || {
            if let Err(error) = runtime.block_on(service.run_on(input, output)) {
                tracing::error!(?error, "server over pipes failed");
            }
        })?;
        Ok((from_server, to_server))
    })
}

impl Transport for StreamTransport {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn TransportHandle>>> + Send + 'a>> {
        let line = (self.open)().and_then(|pair| StreamHandle::start(pair, wire));
        Box::pin(std::future::ready(line.map(|line| Box::new(line) as Box<dyn TransportHandle>)))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

struct StreamHandle {
    wire: Wire,
    /// Whether the writer thread has to stop once all queued messages are written.
    is_closing: Arc<AtomicBool>,
    wake: SyncSender<()>,
    /// Whether the server has closed its output.
    is_done: watch::Receiver<bool>,
}

impl StreamHandle {
    fn start((input, output): StreamPair, wire: Wire) -> io::Result<Self> {
        let (wake, wake_receiver) = sync_channel(1);
        let closing = Arc::new(AtomicBool::new(false));
        let (ended, done) = watch::channel(false);
        let (reading, writing, is_last) = (wire.clone(), wire.clone(), closing.clone());
        thread::Builder::new().name("linchpin-read".into()).spawn(move || {
            let reason = match read_all(input, &reading) {
                Ok(()) => "the server closed its output".to_owned(),
                Err(error) => format!("failed to read the output of the server: {error}"),
            };
            reading.report_closed(&reason);
            ended.send_replace(true);
        })?;
        let write = move || write_all(output, &writing, &wake_receiver, &is_last);
        thread::Builder::new().name("linchpin-write".into()).spawn(write)?;
        let sent = wake.clone();
        // A full channel means that the writer will wake up anyway.
        wire.on_outgoing(move || {
            let _ = sent.try_send(());
        });
        Ok(StreamHandle { wire, is_closing: closing, wake, is_done: done })
    }

    fn stop_writing(&self) {
        self.is_closing.store(true, Ordering::Release);
        let _ = self.wake.try_send(()); // a full channel wakes the writer, too
    }
}

fn read_all(mut input: Box<dyn Read + Send>, wire: &Wire) -> io::Result<()> {
    let mut lines = LineBuffer::new(wire.max_message());
    loop {
        match input.read(lines.space()) {
            Ok(0) => break,
            Ok(count) => lines.advance(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        while let Some(line) = lines.next_line() {
            match line {
                Framed::Complete(line) => wire.receive(line),
                Framed::TooLong => wire.too_long(),
            }
        }
    }
    if let Some(line) = lines.last_line() {
        wire.receive(line);
    }
    Ok(())
}

/// Writes outgoing messages to the stream until the connection ends. Dropping the output then signals the end of input
/// to the server.
fn write_all(
    mut output: Box<dyn Write + Send>,
    wire: &Wire,
    wake_receiver: &Receiver<()>,
    closing: &AtomicBool,
) {
    while wake_receiver.recv().is_ok() {
        let is_last = closing.load(Ordering::Acquire);
        let mut lines = Vec::new();
        wire.take_outgoing(&mut lines);
        if let Err(error) = output.write_all(&lines).and_then(|()| output.flush()) {
            return wire.report_closed(&format!("failed to write to the server: {error}"));
        }
        if is_last || wire.is_ended() {
            return;
        }
    }
}

impl TransportHandle for StreamHandle {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.stop_writing();
        let mut done = self.is_done.clone();
        Box::pin(async move {
            // An error means that the reading thread has finished, which is an end, too.
            let _ = done.wait_for(|done| *done).await;
            self.wire.report_closed("the client closed the connection");
        })
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.wire.report_closed("the client closed the connection");
        self.stop_writing();
    }
}
