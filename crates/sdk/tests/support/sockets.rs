//! A server on its own thread, and clients that write raw bytes to sockets.
#![cfg(feature = "http-server")]

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::Pin;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::body::Incoming;
use linchpin::HttpEndpoint;
use linchpin::server::web::Listener;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tower_service::Service;

/// Timeout for events. Only a failing test reaches it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

type End = Pin<Box<dyn Future<Output = ()> + Send>>;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A listening server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<linchpin::Result>>,
}

impl TestServer {
    pub(crate) fn start(http: HttpEndpoint) -> Self {
        let runtime = runtime();
        let listening = runtime.block_on(http.bind("127.0.0.1:0")).unwrap();
        Self::run(listening.address(), runtime, |end| listening.run_until(end))
    }

    /// Starts a server with another service.
    pub(crate) fn serving<S, B>(settings: impl FnOnce(Listener) -> Listener, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = http::Response<B>, Error = Infallible, Future: Send>,
        S: Clone + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let runtime = runtime();
        let listener = settings(runtime.block_on(Listener::bind("127.0.0.1:0")).unwrap());
        Self::run(listener.address(), runtime, |end| listener.run_until(end, service))
    }

    fn run<F: Future<Output = linchpin::Result> + Send + 'static>(
        address: SocketAddr,
        runtime: Runtime,
        serve: impl FnOnce(End) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve(Box::pin(async move { drop(stopped.await) }));
        let handle = runtime.handle().clone();
        let thread = std::thread::spawn(move || runtime.block_on(serving));
        TestServer { address, runtime: handle, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Socket {
        Socket::connect(self.address).unwrap()
    }

    /// Returns the number of connections, streams and calls of the server.
    pub(crate) fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }

    /// Waits until the server has this many tasks.
    pub(crate) fn until_tasks(&self, count: usize) {
        let begun = Instant::now();
        while self.tasks() != count {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{} tasks are left", self.tasks());
            std::thread::yield_now();
        }
    }

    /// Stops the server.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits until the server has stopped, and returns how long that took.
    pub(crate) fn stop_and_wait(mut self) -> Duration {
        let begun = Instant::now();
        self.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
        begun.elapsed()
    }
}

/// One connection.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response with its complete body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Socket {
    pub(crate) fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Socket { stream, buffer: Vec::new() })
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Writes to a peer that may be gone.
    pub(crate) fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn end_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads more bytes; returns `false` at the end.
    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}: the server neither responds nor closes"),
        }
    }

    fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                let text: Vec<u8> = self.buffer.drain(..at + end.len()).collect();
                return Some(String::from_utf8(text).unwrap());
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Reads the head of the next response; `None` if the server closes instead.
    pub(crate) fn head(&mut self) -> Option<(u16, String)> {
        let head = self.until(b"\r\n\r\n")?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some((status, head.to_ascii_lowercase()))
    }

    /// Reads the next response; `None` if the server closes instead.
    pub(crate) fn response(&mut self) -> Option<Response> {
        let (status, head) = self.head()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if matches!(status, 204 | 304) {
            return Some(Response { status, head, body: String::new() });
        }
        let body = match length.map(|length| length.parse::<usize>().unwrap()) {
            Some(length) => {
                while self.buffer.len() < length {
                    assert!(self.read_more(), "the body is truncated");
                }
                self.buffer.drain(..length).collect()
            }
            None if head.contains("transfer-encoding: chunked") => {
                let mut all = String::new();
                while let Some(chunk) = self.chunk() {
                    all.push_str(&chunk);
                }
                all.into_bytes()
            }
            None => {
                while self.read_more() {}
                std::mem::take(&mut self.buffer)
            }
        };
        Some(Response { status, head, body: String::from_utf8(body).unwrap() })
    }

    /// Reads the next chunk of a body; `None` at its end.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        while self.buffer.len() < size + 2 {
            assert!(self.read_more(), "the chunk is truncated");
        }
        let chunk: Vec<u8> = self.buffer.drain(..size + 2).take(size).collect();
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// Waits until the server closes; returns what it sends before that.
    pub(crate) fn end(&mut self) -> String {
        while self.read_more() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }
}
