//! Server side of the stdio transport: reads messages from standard input and writes responses to standard output.
//!
//! A dedicated thread reads with blocking calls, which work on pipes, sockets, files and terminals alike, and
//! handles each message on that thread: a handler that does not wait costs one read and one write, without waking
//! another thread. A handler that waits is moved to the runtime. Responses are appended to the outbox. The reading
//! thread writes them once it has read all available input; later responses are written by a thread of the runtime's
//! blocking pool.

use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use linchpin_jsonrpc::{FramedLine, LineBuffer, Outbox};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::std_stream::StdStream;
use crate::lock::lock;
use crate::server::{Connection, INPUT_ENDED, ReplyChannel, Service};
use crate::{Error, Result};

/// Outgoing bytes that may be queued before senders must wait.
const HIGH_WATER: usize = 1 << 20;

/// Minimum time that a client has to read the last responses at shutdown.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an MCP client over standard input and output until the input ends and every request has its response.
pub(crate) async fn serve(service: Service) -> Result<()> {
    let input = StdStream::new(io::stdin())
        .map_err(|error| Error::setup(format!("standard input cannot be read: {error}")))?;
    let output = StdStream::new(io::stdout())
        .map_err(|error| Error::setup(format!("standard output cannot be written: {error}")))?;
    serve_on(service, input, output).await
}

/// Serves an MCP client over any pair of blocking streams, one message per line.
pub(crate) async fn serve_on(
    service: Service,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<()> {
    let runtime = Handle::current();
    let (error_sender, write_error) = oneshot::channel();
    let writer = Arc::new_cyclic(|writer: &Weak<StdoutWriter>| {
        let deferred_writer = writer.clone();
        let handle = runtime.clone();
        let wake =
            move || deferred_writer.upgrade().into_iter().for_each(|writer| writer.flush_later(&handle));
        StdoutWriter {
            outbox: Arc::new(Outbox::new(HIGH_WATER, wake)),
            output: Mutex::new(StdoutState { stream: Box::new(output), buffer: Vec::new() }),
            scheduled: AtomicBool::new(false),
            on_error: Mutex::new(Some(error_sender)),
        }
    });
    let timeout = service.settings().shutdown_timeout;
    let connection = Connection::new(service, writer.outbox.clone(), ReplyChannel::Lasting);
    let _gone = AbandonOnDrop(connection.clone());
    let (end_sender, end_receiver) = oneshot::channel();
    let reader = StdinReader { connection: connection.clone(), writer: writer.clone(), runtime };
    std::thread::Builder::new().name("linchpin-stdio".into()).spawn(move || {
        // The receiver is gone if the future of `serve` was dropped.
        let _ = end_sender.send(reader.read_all(input));
    })?;
    match input_end_or_write_error(end_receiver, write_error).await {
        Ok(()) => {
            connection.finish(INPUT_ENDED, timeout).await;
            // Not on this thread: a client that does not read must not block the process without limit.
            let last = tokio::task::spawn_blocking(move || writer.flush());
            match tokio::time::timeout(timeout.max(FINAL_WRITE_TIMEOUT), last).await {
                Ok(flushed) => into_result(flushed.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))),
                Err(_) => Err(Error::setup("the client did not read the last responses in time")),
            }
        }
        Err(error) => into_result(Err(error)),
    }
}

/// Guard that abandons the connection when serving ends, also by dropping its future, so that no work continues.
struct AbandonOnDrop(Arc<Connection>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Waits for the end of standard input or for a write error. The reading thread would notice a write error only with
/// the next message, which may never arrive.
async fn input_end_or_write_error(
    mut end_receiver: oneshot::Receiver<io::Result<()>>,
    mut write_error: oneshot::Receiver<io::Error>,
) -> io::Result<()> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(Ok(error)) = Pin::new(&mut write_error).poll(cx) {
            return Poll::Ready(Err(error));
        }
        let lost = |_| Err(io::Error::other("the thread that reads standard input ended unexpectedly"));
        Pin::new(&mut end_receiver).poll(cx).map(|end| end.unwrap_or_else(lost))
    })
    .await
}

/// Turns the error of a client that stops reading into success: it has disconnected, which is a normal end.
fn into_result(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if is_disconnect(error.kind()) => Ok(()),
        Err(error) => Err(Error::setup(format!("standard input and output failed: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn is_disconnect(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

struct StdinReader {
    connection: Arc<Connection>,
    writer: Arc<StdoutWriter>,
    runtime: Handle,
}

impl StdinReader {
    fn read_all(&self, mut input: impl Read) -> io::Result<()> {
        let _in_runtime = self.runtime.enter();
        let max_message = self.connection.service().settings().max_message;
        let mut lines = LineBuffer::new(max_message);
        while !self.writer.outbox.is_closed() {
            let count = match input.read(lines.space()) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if count == 0 {
                break;
            }
            lines.advance(count);
            while let Some(line) = lines.next_line() {
                match line {
                    FramedLine::Complete(line) => self.receive(line),
                    FramedLine::TooLong => self.connection.reject_oversized(max_message),
                }
                if self.writer.outbox.is_full() {
                    self.writer.flush()?;
                }
            }
            self.writer.flush()?;
        }
        if let Some(line) = lines.last_line() {
            self.receive(line);
        }
        self.writer.flush()
    }

    fn receive(&self, line: &[u8]) {
        if self.writer.outbox.is_closed() {
            return; // the client no longer reads
        }
        if let Some(rest) = self.connection.receive(line) {
            crate::server::spawn(&self.runtime, self.connection.track(rest));
        }
    }
}

struct StdoutWriter {
    outbox: Arc<Outbox>,
    output: Mutex<StdoutState>,
    scheduled: AtomicBool,
    /// Channel that reports a failed write to standard output.
    on_error: Mutex<Option<oneshot::Sender<io::Error>>>,
}

struct StdoutState {
    stream: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

/// Size above which the output buffer is freed after a write, rather than reused.
const MAX_RETAINED_BYTES: usize = 1 << 20;

impl StdoutWriter {
    /// Writes all queued messages to standard output. They are taken while the stream is locked, so that they stay in
    /// order.
    fn flush(&self) -> io::Result<()> {
        self.write_all(&mut lock(&self.output))
    }

    fn write_all(&self, StdoutState { stream, buffer }: &mut StdoutState) -> io::Result<()> {
        loop {
            self.outbox.take(buffer);
            if buffer.is_empty() {
                return Ok(());
            }
            let write_result = stream.write_all(buffer).and_then(|()| stream.flush());
            buffer.clear();
            if buffer.capacity() > MAX_RETAINED_BYTES {
                *buffer = Vec::new();
            }
            if let Err(error) = write_result {
                self.outbox.close();
                return Err(error);
            }
        }
    }

    /// Schedules writing the queued messages on a thread that may block.
    fn flush_later(self: Arc<Self>, runtime: &Handle) {
        if self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        runtime.spawn_blocking(move || {
            let mut output = lock(&self.output);
            // Reset only under the lock: until then, the scheduled write covers all new messages.
            self.scheduled.store(false, Ordering::Release);
            if let Err(error) = self.write_all(&mut output) {
                tracing::debug!(%error, "failed to write to the client");
                let error_sender = lock(&self.on_error).take();
                // The receiver is gone once the input has ended.
                let _ = error_sender.map(|error_sender| error_sender.send(error));
            }
        });
    }
}
