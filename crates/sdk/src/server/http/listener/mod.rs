//! Accept loop of a listener: admits connections, enforces their timeouts and shuts them down gracefully. Requests are
//! handled by the endpoint or by any other service.

pub(super) mod shutdown_signal;
#[cfg(feature = "tls")]
pub(super) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub(super) mod tls;
pub(super) mod watchdog;

use std::convert::Infallible;
use std::fmt::Debug;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tower_service::Service;

use self::tls::Tls;
use self::watchdog::{
    BodyRateHandle, ConnectionActivity, ConnectionPermit, ConnectionWatchdog, MonitoredIo, TICK_INTERVAL,
};
use super::options::ConnectionLimits;
use crate::{Error, Result};

/// Maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Length of the accept queue of the listening socket. With a short one, a burst of connections delays others for
/// seconds.
#[cfg(unix)]
const BACKLOG: i32 = 4_096;
/// Delay after an accept error, such as a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Default time that running requests have to finish at shutdown.
const DEFAULT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Addresses of the two ends of an HTTP connection: of the client or its proxy, and of this machine. Services find them
/// among the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAddresses {
    /// Address of the client, or of a proxy.
    pub peer: SocketAddr,
    /// Address of this machine that the client connected to.
    pub local: Option<SocketAddr>,
}

/// Returns the network of a client address, for limits per client: the address itself for IPv4, the /64 network for
/// IPv6, since one subscriber has all 2^64 addresses of it.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        address => address,
    }
}

/// HTTP connection on which a request arrived: its addresses, and the handle for reports of slow bodies.
#[derive(Clone)]
pub(super) struct RequestOrigin {
    pub(super) addresses: ConnectionAddresses,
    pub(super) watch: BodyRateHandle,
}

/// Handler of the HTTP requests that a listener accepts.
pub(super) trait HttpHandler: Clone + Send + 'static {
    type Body: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static;

    fn handle(
        self,
        request: Request<Incoming>,
        origin: RequestOrigin,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Adapter of a `tower` service to the request handler of a listener.
#[derive(Clone)]
struct ServiceAdapter<S>(S);

impl<S, B> HttpHandler for ServiceAdapter<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Body = B;

    async fn handle(mut self, mut request: Request<Incoming>, origin: RequestOrigin) -> Response<B> {
        request.extensions_mut().insert(origin.addresses);
        request.extensions_mut().insert(origin.watch);
        let Ok(()) = std::future::poll_fn(|cx| self.0.poll_ready(cx)).await;
        let Ok(response) = self.0.call(request).await;
        response
    }
}

/// HTTP/1.1 listener with limits on connections: their number, and how long each may be silent, take to send a request,
/// and not read a response. [`Server::http`](crate::Server::http) serves MCP; this is for other services.
#[must_use = "a listener serves nothing until it runs"]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    limits: ConnectionLimits,
    shutdown_timeout: Duration,
    /// Filter of client addresses; connections from other addresses are closed.
    address_filter: Option<AddressFilter>,
    tls: Option<Tls>,
}

type AddressFilter = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

impl Listener {
    /// Binds a TCP listener to an address. Port 0 selects a free port.
    pub async fn bind(address: impl tokio::net::ToSocketAddrs + Debug) -> Result<Self> {
        Self::new(bind(address).await?, ConnectionLimits::default(), DEFAULT_SHUTDOWN_TIMEOUT)
    }

    pub(super) fn new(socket: TcpListener, bounds: ConnectionLimits, timeout: Duration) -> Result<Self> {
        let address = socket.local_addr()?;
        Ok(Listener {
            socket,
            address,
            limits: bounds,
            shutdown_timeout: timeout,
            address_filter: None,
            tls: None,
        })
    }

    /// Returns the socket address that the listener is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the origin for clients on this machine: `http://`, or `https://` with TLS, an address and a port.
    pub fn origin(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{ip}:{}", self.address.port())
    }

    /// Sets the maximum number of connections, at most three quarters of the open-file limit at the start. Default:
    /// 16,384. At the limit, connections are closed for new ones if they are idle, or if their request arrives or their
    /// response is read too slowly. If there are none, new connections are refused with 503.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.limits.max = max.max(1);
        self
    }

    /// Sets the maximum number of connections from one IPv4 address or IPv6 /64 network. Default: no separate limit,
    /// since many clients may share an address.
    pub fn max_connections_per_address(mut self, max: usize) -> Self {
        self.limits.max_per_address = max.max(1);
        self
    }

    /// Sets how long a connection may be silent before its first request (default: 5 s), take for the head of a request
    /// (default: 10 s), and be idle between requests (default: 75 s).
    pub fn connection_timeouts(mut self, first_byte: Duration, head: Duration, idle: Duration) -> Self {
        let limits = &mut self.limits;
        (limits.first_byte, limits.head, limits.idle) = (first_byte, head, idle);
        self
    }

    /// Enables TLS on the listener. The handshake has to complete within the time for the head of a request.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Accepts only connections from addresses that the filter allows. Nothing is read from others.
    pub fn only_from(mut self, is_allowed: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.address_filter = Some(Box::new(is_allowed));
        self
    }

    /// Sets how long running requests may take to finish at shutdown. Default: 10 s.
    pub fn shutdown_timeout(mut self, time: Duration) -> Self {
        self.shutdown_timeout = time;
        self
    }

    /// Serves HTTP requests with `service` until `end` completes, then until all running requests are done. `end` must
    /// also end open-ended responses.
    pub async fn run_until<S, B>(self, end: impl Future<Output = ()>, service: S) -> Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>,
        S: Clone + Send + 'static,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        self.accept(end, ServiceAdapter(service)).await;
        Ok(())
    }

    pub(super) async fn accept(self, end: impl Future<Output = ()>, handler: impl HttpHandler) {
        let Listener { socket, mut limits, shutdown_timeout, address_filter, tls, .. } = self;
        limits.max = limits.max.min(max_connections_by_fd_limit().unwrap_or(usize::MAX));
        let watch = ConnectionWatchdog::new(limits);
        let mut connections = JoinSet::new();
        let mut end = std::pin::pin!(end);
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut end => break,
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let is_allowed = address_filter.as_ref().is_none_or(|filter| filter(peer.ip().to_canonical()));
                        match is_allowed.then(|| watch.admit(peer.ip())) {
                            Some(Some(permit)) => {
                                connections.spawn(serve(stream, peer, permit, tls.clone(), handler.clone()));
                            }
                            Some(None) if tls.is_none() => respond_unavailable(stream),
                            _ => {}
                        }
                    }
                    Err(error) if is_transient(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection; retrying");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                _ = ticks.tick() => watch.tick(),
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        drop(socket);
        watch.shut_down();
        let all = async {
            while !connections.is_empty() {
                tokio::select! {
                    _ = connections.join_next() => {}
                    _ = ticks.tick() => watch.tick(),
                }
            }
        };
        if tokio::time::timeout(shutdown_timeout, all).await.is_err() {
            tracing::warn!("shutdown timeout reached; remaining requests were cancelled");
        }
    }
}

/// Returns the number of connections that the open-file limit allows: three quarters of it. The rest is for files,
/// clients and child processes.
fn max_connections_by_fd_limit() -> Option<usize> {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    let limit: Option<u64> = None;
    let limit = usize::try_from(limit?).ok()?;
    Some((limit - limit / 4).max(1))
}

/// Responds to a connection beyond the limit with 503, without waiting for the client to read it.
fn respond_unavailable(stream: TcpStream) {
    const UNAVAILABLE_RESPONSE: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(UNAVAILABLE_RESPONSE); // the client may be gone
    }
}

/// Returns whether the client disconnected before it was accepted.
fn is_transient(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    tls: Option<Tls>,
    handler: impl HttpHandler,
) {
    let _ = stream.set_nodelay(true); // slower without, but not wrong
    let addresses = ConnectionAddresses { peer, local: stream.local_addr().ok() };
    let io = MonitoredIo { stream, activity: permit.activity.clone() };
    let Some(tls) = tls else { return serve_http(io, addresses, permit, handler).await };
    let secured = tokio::select! {
        secured = tls.handshake(io) => secured,
        // The handshake timed out, or the server is shutting down before the first request.
        () = permit.activity.end.notified() => return,
    };
    match secured {
        Ok(io) => serve_http(io, addresses, permit, handler).await,
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}

async fn serve_http<I>(
    io: I,
    addresses: ConnectionAddresses,
    permit: ConnectionPermit,
    handler: impl HttpHandler,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (io, watched) = (TokioIo::new(io), permit.activity.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, watched) = (handler.clone(), watched.clone());
        async move {
            watched.start_request();
            let origin = RequestOrigin { addresses, watch: BodyRateHandle(watched.clone()) };
            let reply = handler.handle(request, origin).await;
            Ok::<_, Infallible>(reply.map(|body| TrackedBody { body, watched }))
        }
    });
    let mut http = http1::Builder::new();
    http.half_close(false).max_header_size(MAX_HEAD_BYTES);
    let mut connection = std::pin::pin!(http.serve_connection(io, service));
    let mut is_shutting_down = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            () = permit.activity.end.notified() => {
                if permit.activity.should_drop() {
                    return; // dropping it closes it
                }
                if !is_shutting_down {
                    is_shutting_down = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Response body that marks its connection as idle when it is dropped.
struct TrackedBody<B> {
    body: B,
    watched: Arc<ConnectionActivity>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

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

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.watched.finish_request();
    }
}

/// Binds a TCP socket to an address, with a longer accept queue than the default.
pub(crate) async fn bind(address: impl tokio::net::ToSocketAddrs + Debug) -> Result<TcpListener> {
    let shown = format!("{address:?}");
    let cannot = |error| Error::setup(format!("cannot listen on {}: {error}", shown.trim_matches('"')));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    // Listen again with a longer queue.
    #[cfg(unix)]
    rustix::net::listen(&listener, BACKLOG).map_err(|error| cannot(error.into()))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_network_are_one_client() {
        for (address, expected) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(client_network(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        }
    }
}
