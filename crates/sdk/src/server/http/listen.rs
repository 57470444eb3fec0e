//! The accept loop: connections come in, are looked after, and end in good order with the server.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Request;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::body::Body;
use super::endpoint::Endpoint;
use super::watch::{Guest, TICK, Watch, Watched, WatchedIo};
use crate::{Error, Result};

/// Header bytes of one request.
const MAX_HEAD: usize = 16 << 10;
/// Connections that may wait to be accepted. With few of them a burst of strangers keeps others waiting for seconds.
#[cfg(unix)]
const BACKLOG: i32 = 4_096;
/// How long to wait when the system has nothing left to accept a connection with.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(50);

/// An endpoint that is bound to an address. [`Listening::run`] serves it.
#[must_use = "nothing is served until it runs"]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    endpoint: Arc<Endpoint>,
}

impl Listening {
    pub(super) fn new(listener: TcpListener, endpoint: Arc<Endpoint>) -> Result<Self> {
        let address = listener.local_addr()?;
        Ok(Listening { listener, address, endpoint })
    }

    /// The address it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients on this machine.
    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("http://{ip}:{}{}", self.address.port(), self.endpoint.options.path)
    }

    /// Serves until the process is asked to end, by Ctrl-C or SIGTERM, and then until every request is answered.
    pub async fn run(self) -> Result<()> {
        self.run_until(super::signals::asked_to_end()).await
    }

    /// Serves until `end` is done, and then until every request is answered.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<()> {
        let Listening { listener, endpoint, .. } = self;
        let watch = Watch::new(endpoint.options.connections);
        let mut connections = JoinSet::new();
        let mut end = std::pin::pin!(end);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut end => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        // Whoever is too much is let go without a word: words would cost more.
                        if let Some(guest) = watch.admit(address.ip()) {
                            connections.spawn(serve(stream, guest, endpoint.clone()));
                        }
                    }
                    Err(error) if is_passing(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "no connection can be accepted now");
                        tokio::time::sleep(OUT_OF_SOCKETS).await;
                    }
                },
                _ = ticks.tick() => watch.tick(),
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        drop(listener);
        endpoint.close();
        watch.end_all();
        let patience = endpoint.service.settings().shutdown_timeout;
        let all = async {
            while !connections.is_empty() {
                tokio::select! {
                    _ = connections.join_next() => {}
                    _ = ticks.tick() => watch.tick(),
                }
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("some requests did not end in time and were given up");
        }
        Ok(())
    }
}

/// A client that left before it was let in.
fn is_passing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve(stream: TcpStream, guest: Guest, endpoint: Arc<Endpoint>) {
    let _ = stream.set_nodelay(true); // slower without, but not wrong
    let local = stream.local_addr().ok().map(|address| address.ip());
    let watched = guest.watched.clone();
    let io = TokioIo::new(WatchedIo { stream, watched: watched.clone() });
    let service = service_fn(|request: Request<Incoming>| {
        let (endpoint, watched) = (endpoint.clone(), watched.clone());
        async move {
            watched.begin();
            let reply = endpoint.handle(request, local).await;
            Ok::<_, std::convert::Infallible>(reply.map(|body| Noticed { body, watched }))
        }
    });
    let mut http = http1::Builder::new();
    http.half_close(false).max_header_size(MAX_HEAD);
    let mut connection = std::pin::pin!(http.serve_connection(io, service));
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = watched.end.notified() => {
                if watched.is_late.load(Ordering::Acquire) != 0 {
                    return; // by dropping it
                }
                if !is_ending {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// The body of an answer; when it is gone, the connection is free again.
struct Noticed {
    body: Body,
    watched: Arc<Watched>,
}

impl HttpBody for Noticed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Noticed {
    fn drop(&mut self) {
        self.watched.done();
    }
}

/// Binds an address.
pub(crate) async fn bind(address: impl tokio::net::ToSocketAddrs) -> Result<TcpListener> {
    let cannot = |error| Error::setup(format!("the address cannot be listened at: {error}"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    // Once more, with a longer queue.
    #[cfg(unix)]
    rustix::net::listen(&listener, BACKLOG).map_err(|error| cannot(error.into()))?;
    Ok(listener)
}
