//! Pairs of blocking streams as a way to a server: real pipes within one process.

use std::io::{self, ErrorKind, Read, Write, pipe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use linchpin_jsonrpc::{Line as Framed, LineBuffer};
use tokio::sync::watch;

use crate::Service;
use crate::transport::{Line, Transport, Wire};

type Pair = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// A way to a server over a pair of blocking streams, one message per line. Each connection has a thread that reads
/// and one that writes.
///
/// The time of the streams is real: do not use it with tokio's paused clock.
pub struct Streams {
    name: String,
    open: Box<dyn Fn() -> io::Result<Pair> + Send + Sync>,
}

impl Streams {
    /// `open` gives what is read from and what is written to, anew for each connection.
    pub fn new<R, W>(
        name: impl Into<String>,
        open: impl Fn() -> io::Result<(R, W)> + Send + Sync + 'static,
    ) -> Self
    where
        R: Read + Send + 'static,
        W: Write + Send + 'static,
    {
        let open = move || open().map(|(input, output)| (Box::new(input) as _, Box::new(output) as _));
        Streams { name: name.into(), open: Box::new(open) }
    }
}

/// The way to a server that is served over pipes of the operating system, as on its standard input and output, on a
/// thread with a runtime of its own.
pub fn piped(service: &Service) -> Streams {
    let service = service.clone();
    let name = format!("{} over pipes ({:p})", service.settings().info.name, service.settings());
    Streams::new(name, move || {
        let (input, to_server) = pipe()?;
        let (from_server, output) = pipe()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let service = service.clone();
        thread::Builder::new().name("linchpin-piped".into()).spawn(move || {
            if let Err(error) = runtime.block_on(service.run_on(input, output)) {
                tracing::error!(?error, "a server over pipes failed");
            }
        })?;
        Ok((from_server, to_server))
    })
}

impl Transport for Streams {
    fn open<'a>(
        &'a self,
        wire: Wire,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Line>>> + Send + 'a>> {
        let line = (self.open)().and_then(|pair| StreamsLine::start(pair, wire));
        Box::pin(std::future::ready(line.map(|line| Box::new(line) as Box<dyn Line>)))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

struct StreamsLine {
    wire: Wire,
    /// Nothing more is to be written once what waits is.
    closing: Arc<AtomicBool>,
    wake: SyncSender<()>,
    /// Whether the other side has ended, too.
    done: watch::Receiver<bool>,
}

impl StreamsLine {
    fn start((input, output): Pair, wire: Wire) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let closing = Arc::new(AtomicBool::new(false));
        let (ended, done) = watch::channel(false);
        let (reading, writing, last) = (wire.clone(), wire.clone(), closing.clone());
        thread::Builder::new().name("linchpin-read".into()).spawn(move || {
            let reason = match read_all(input, &reading) {
                Ok(()) => "the server closed its output".to_owned(),
                Err(error) => format!("the server's output cannot be read: {error}"),
            };
            reading.ended(&reason);
            ended.send_replace(true);
        })?;
        let write = move || write_all(output, &writing, &woken, &last);
        thread::Builder::new().name("linchpin-write".into()).spawn(write)?;
        let sent = wake.clone();
        // A full channel means that the writer is awake already.
        wire.on_outgoing(move || {
            let _ = sent.try_send(());
        });
        Ok(StreamsLine { wire, closing, wake, done })
    }

    fn stop_writing(&self) {
        self.closing.store(true, Ordering::Release);
        let _ = self.wake.try_send(()); // a full channel wakes the writer, too
    }
}

fn read_all(mut input: Box<dyn Read + Send>, wire: &Wire) -> io::Result<()> {
    let mut lines = LineBuffer::new(wire.max_message());
    loop {
        match input.read(lines.space()) {
            Ok(0) => break,
            Ok(count) => lines.filled(count),
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

/// Writes what is to be sent until nothing more will be; then the other side reads the end of its input.
fn write_all(mut output: Box<dyn Write + Send>, wire: &Wire, woken: &Receiver<()>, closing: &AtomicBool) {
    while woken.recv().is_ok() {
        let last = closing.load(Ordering::Acquire);
        let mut lines = Vec::new();
        wire.take(&mut lines);
        if let Err(error) = output.write_all(&lines).and_then(|()| output.flush()) {
            return wire.ended(&format!("the server does not read its input: {error}"));
        }
        if last || wire.is_ended() {
            return;
        }
    }
}

impl Line for StreamsLine {
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.stop_writing();
        let mut done = self.done.clone();
        Box::pin(async move {
            // An error means that the reading thread is gone, which is an end as well.
            let _ = done.wait_for(|done| *done).await;
            self.wire.ended("it was closed");
        })
    }
}

impl Drop for StreamsLine {
    fn drop(&mut self) {
        self.wire.ended("it was closed");
        self.stop_writing();
    }
}
