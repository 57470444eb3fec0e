//! Scripted server on plain sockets, and scripted resolver.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use http::Request;
use linchpin::egress::{Body, BoxFuture, Resolver};

/// Reaction of a server to a request.
pub(crate) enum Reply {
    /// Writes this and waits for the next request.
    Keep(String),
    /// Writes this and closes the connection.
    Close(String),
}

/// A received request: head and body.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A server on its own threads; stopped on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Notified of each connection after the server has closed it.
    closed: Arc<Mutex<Receiver<()>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(reply: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_at("127.0.0.1:0".parse().unwrap(), reply)
    }

    pub(crate) fn start_at(
        address: SocketAddr,
        reply: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Server {
        Server::start_with(address, |stream| stream, reply)
    }

    /// Starts a server. `wrap` creates the stream that requests are read from, such as TLS.
    pub(crate) fn start_with<S: Read + Write>(
        address: SocketAddr,
        wrap: impl Fn(TcpStream) -> S + Send + Sync + 'static,
        reply: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (close, closed) = sync_channel(10_000);
        let (counter, log, ended) = (connections.clone(), seen.clone(), over.clone());
        let (wrap, reply) = (Arc::new(wrap), Arc::new(reply));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let (log, wrap, reply, close) = (log.clone(), wrap.clone(), reply.clone(), close.clone());
                // It finishes when the client closes, or when the reply closes.
                std::thread::spawn(move || {
                    serve(wrap(stream), &log, &*reply);
                    let _ = close.try_send(());
                });
            }
        });
        let closed = Arc::new(Mutex::new(closed));
        Server { address, connections, seen, closed, over, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the server has closed another connection, and the close has arrived here.
    pub(crate) async fn closes(&self) {
        let closed = self.closed.clone();
        tokio::task::spawn_blocking(move || closed.lock().unwrap().recv().unwrap()).await.unwrap();
        // The runtime notices the close while it polls for this connection.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(
    mut stream: impl Read + Write,
    log: &Mutex<Vec<ReceivedRequest>>,
    reply: &dyn Fn(&ReceivedRequest) -> Reply,
) {
    while let Some((head, body)) = read_request(&mut stream) {
        let seen = ReceivedRequest { head, body };
        log.lock().unwrap().push(seen.clone());
        let (text, closes) = match reply(&seen) {
            Reply::Keep(text) => (text, false),
            Reply::Close(text) => (text, true),
        };
        // The client may have disconnected.
        if stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).is_err() || closes {
            return;
        }
    }
}

/// Reads head and body of the next request; `None` at the end.
pub(crate) fn read_request(input: &mut impl Read) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        input.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<u64>().unwrap())
    });
    let mut body = String::new();
    input.take(length.unwrap_or(0)).read_to_string(&mut body).ok()?;
    Some((head, body))
}

pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn get() -> Request<Body> {
    Request::new(Body::empty())
}

pub(crate) fn post(body: &'static str) -> Request<Body> {
    Request::post("/").body(Body::from(body)).unwrap()
}

/// A scripted resolver: each lookup of any name uses the next entry; the last one is repeated.
pub(crate) struct Script(Mutex<VecDeque<Vec<IpAddr>>>);

impl Script {
    pub(crate) fn new<'a>(answers: impl IntoIterator<Item = &'a [IpAddr]>) -> Script {
        Script(Mutex::new(answers.into_iter().map(<[IpAddr]>::to_vec).collect()))
    }

    pub(crate) fn always(address: &str) -> Script {
        Script::new([&[address.parse().unwrap()][..]])
    }
}

impl Resolver for Script {
    fn resolve(&self, _: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(std::future::ready(answer.ok_or_else(|| io::Error::other("the script is over"))))
    }
}
