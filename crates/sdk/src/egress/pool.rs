//! Pool of outgoing HTTP connections, without a task per connection and without a timer per request.
//!
//! The future that waits for a response drives its connection. Idle connections are not driven; a close by the
//! server is noticed when the connection is taken from the pool. One task, which runs only while there are idle
//! connections, closes the old ones.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::address_class::AddressClass;
use super::body::{Body, ResponseBody};
use super::builder::EgressBuilder;
use super::denials::DenialListener;
use super::dial::{BoxedStream, Dialer, Route};
use super::error::{EgressError, EgressErrorKind};
use super::policy::UrlSource;
use super::proxy::HttpProxy;
use super::target::{ConnectionKey, Target};
use crate::lock::lock;
use crate::server::spawn;

/// Read buffer size: the limit of a response head, and of one body chunk.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// HTTP client for outgoing requests, which enforces an egress [policy](super::Policy). Cheap to clone; clones share
/// connections.
///
/// ```no_run
/// use linchpin::egress::{Body, Egress, Target};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let egress = Egress::new();
/// let target = Target::configured("https://example.com/")?;
/// let response = egress.send(http::Request::new(Body::empty()), &target).await?;
/// let page = response.into_body().read_to_end(1024 * 1024).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
    /// Listener for connections that the policy denies.
    pub(super) denials: Option<Arc<DenialListener>>,
}

struct Shared {
    dialer: RwLock<Arc<Dialer>>,
    pool: Arc<Pool>,
}

impl Default for Egress {
    fn default() -> Self {
        Egress::new()
    }
}

impl Egress {
    /// Creates an HTTP client pool with the default egress settings.
    pub fn new() -> Self {
        EgressBuilder::default().into_egress()
    }

    /// Returns a builder of an egress with custom settings.
    pub fn builder() -> EgressBuilder {
        EgressBuilder::default()
    }

    pub(super) fn with(dialer: Dialer, limits: Limits) -> Self {
        let pool = Arc::new(Pool { limits, state: Mutex::default(), generation: AtomicU64::new(0) });
        Egress { shared: Arc::new(Shared { dialer: RwLock::new(Arc::new(dialer)), pool }), denials: None }
    }

    pub(super) fn dialer(&self) -> Arc<Dialer> {
        self.shared.dialer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces policy, proxy, certificates and connect timeout by those of `other`, at once and for all clones.
    /// Idle connections are closed; connections in use are closed when their response is finished.
    pub fn reconfigure(&self, other: &Egress) {
        *self.shared.dialer.write().unwrap_or_else(PoisonError::into_inner) = other.dialer();
        let pool = &self.shared.pool;
        pool.generation.fetch_add(1, Ordering::SeqCst); // first, so that connections in use do not return
        lock(&pool.state).connections.clear();
    }

    /// Checks the address in a URL against the policy, without connecting. Names other than `localhost` are not
    /// resolved: their addresses are checked when a connection is opened.
    ///
    /// # Errors
    ///
    /// Fails with the error that [`send`](Egress::send) would return.
    pub fn check(&self, target: &Target) -> Result<(), EgressError> {
        self.dialer().check_address(target, target.source())
    }

    /// Sends a request to the target: the URI and `Host` header of the request are overwritten.
    ///
    /// Redirects are returned as responses; see [`Egress::follow`]. There is no response timeout: the caller must
    /// set one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn send(
        &self,
        mut request: Request<Body>,
        target: &Target,
    ) -> Result<Response<ResponseBody>, EgressError> {
        let key = target.key();
        *request.uri_mut() = target.request_uri();
        request.headers_mut().insert(HOST, key.authority.clone());
        while let Some(connection) = poll_fn(|cx| Poll::Ready(self.shared.pool.take(target, cx))).await {
            connection.set_request_target(&mut request, target);
            match connection.exchange(request).await {
                Ok((response, connection)) => return self.wrap_response(response, connection, target),
                // It was closed while idle, and nothing has been written: use the next one, or a new one.
                Err((_, Some(unsent_request))) => request = unsent_request,
                Err((error, None)) => return Err(connection_error(target, error)),
            }
        }
        let connection = self.open(target).await?;
        connection.set_request_target(&mut request, target);
        match connection.exchange(request).await {
            Ok((response, connection)) => self.wrap_response(response, connection, target),
            Err((error, _)) => Err(connection_error(target, error)),
        }
    }

    async fn open(&self, target: &Target) -> Result<Box<PooledConnection>, EgressError> {
        let changes = self.shared.pool.generation.load(Ordering::SeqCst);
        let trust = target.source();
        let dialled = self.dialer().dial(target, trust).await;
        let (stream, route) = dialled.inspect_err(|error| {
            if matches!(error.kind(), EgressErrorKind::Refused(_)) {
                self.deny(&target.host(), error.address(), &error.to_string());
            }
        })?;
        PooledConnection::open(stream, route, trust, changes)
            .await
            .map_err(|error| connection_error(target, error))
    }

    /// Connects without sending anything, to learn the address class of the target. The first request uses the
    /// connection.
    pub(crate) async fn preconnect(&self, target: &Target) -> Result<(), EgressError> {
        let connection = self.open(target).await?;
        target.record_reached(connection.route.class);
        self.shared.pool.put(target.key(), connection);
        Ok(())
    }

    fn wrap_response(
        &self,
        response: Response<Incoming>,
        connection: Box<PooledConnection>,
        target: &Target,
    ) -> Result<Response<ResponseBody>, EgressError> {
        let response = match connection.forwarding_proxy(target) {
            Some(proxy) => proxy.check_response(response, target)?,
            None => response,
        };
        target.record_reached(connection.route.class);
        self.record_reached(target, connection.source, &connection.route);
        let (pool, key) = (self.shared.pool.clone(), target.key().clone());
        Ok(response.map(|body| ResponseBody::new(body, connection, pool, key)))
    }

    /// Returns the number of idle connections in the pool.
    pub fn idle_connections(&self) -> usize {
        lock(&self.shared.pool.state).connections.values().map(Vec::len).sum()
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("idle", &self.idle_connections()).finish_non_exhaustive()
    }
}

fn connection_error(target: &Target, error: hyper::Error) -> EgressError {
    let problem = if error.is_parse() { "the response is not HTTP/1.1" } else { "the connection broke" };
    let text = format!("no response from `{}`: {problem} ({error})", target.host());
    EgressError::new(EgressErrorKind::Http, text).with_source(error)
}

/// HTTP connection of the egress pool, with its request sender. It is large and moved often, hence always boxed.
pub(super) struct PooledConnection {
    connection: Connection<TokioIo<BoxedStream>, Body>,
    sender: SendRequest<Body>,
    route: Route,
    /// Source of the URL for which the connection was opened: configured or discovered.
    source: UrlSource,
    /// Number of reconfigurations of the pool before this connection was opened.
    generation: u64,
    /// Whether the connection has finished and must not be polled again.
    is_finished: bool,
}

impl PooledConnection {
    async fn open(
        stream: BoxedStream,
        route: Route,
        trust: UrlSource,
        changes: u64,
    ) -> Result<Box<PooledConnection>, hyper::Error> {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(READ_BUFFER_BYTES).handshake(TokioIo::new(stream)).await?;
        Ok(Box::new(PooledConnection {
            connection,
            sender,
            route,
            source: trust,
            generation: changes,
            is_finished: false,
        }))
    }

    /// Returns the proxy that forwards plain HTTP requests to the target, if one is configured.
    fn forwarding_proxy(&self, target: &Target) -> Option<&HttpProxy> {
        self.route.proxy.as_deref().filter(|_| !target.is_https())
    }

    /// Sets the URI and proxy authentication in the form that the peer, server or proxy, expects.
    fn set_request_target(&self, request: &mut Request<Body>, target: &Target) {
        if target.is_https() {
            return; // a tunnel or a direct connection
        }
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let Some(proxy) = self.forwarding_proxy(target) else {
            *request.uri_mut() = target.request_uri();
            return;
        };
        *request.uri_mut() = target.absolute_uri();
        if let Some(value) = proxy.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
    }

    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.is_finished {
            // The error, if any, also reaches the future that waits for the response.
            self.is_finished = Pin::new(&mut self.connection).poll(cx).is_ready();
        }
    }

    /// Sends one HTTP request on this pooled connection and waits for the response head. The error contains the request
    /// if nothing of it was written.
    async fn exchange(
        mut self: Box<Self>,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, Box<PooledConnection>), (hyper::Error, Option<Request<Body>>)> {
        let mut response_future = pin!(self.sender.try_send_request(request));
        let outcome = poll_fn(|cx| {
            // Drive the connection first, so that one poll suffices if the response has already arrived.
            self.drive(cx);
            response_future.as_mut().poll(cx)
        });
        match outcome.await {
            Ok(response) => Ok((response, self)),
            Err(mut error) => {
                let unsent_request = error.take_message();
                Err((error.into_error(), unsent_request))
            }
        }
    }

    /// Returns whether the pooled connection can take a request, as far as is known.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        !self.is_finished && self.sender.is_ready()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub idle_timeout: Duration,
    pub idle_per_host: usize,
}

/// Pool of idle outgoing HTTP connections for reuse.
pub(super) struct Pool {
    limits: Limits,
    state: Mutex<PoolState>,
    /// Number of reconfigurations of the pool; older connections are not reused.
    generation: AtomicU64,
}

#[derive(Default)]
struct PoolState {
    connections: HashMap<Arc<ConnectionKey>, Vec<Idle>>,
    /// Whether the task that closes idle connections is running.
    has_reaper: bool,
}

struct Idle {
    connection: Box<PooledConnection>,
    since: Instant,
}

impl Pool {
    /// Takes the most recently used connection to the target that can take a request out of the pool.
    fn take(&self, target: &Target, cx: &mut Context<'_>) -> Option<Box<PooledConnection>> {
        let trust = target.source();
        // A name that was public before must not lead to a private or local address now.
        let is_usable = |idle: &Idle| {
            idle.connection.source == trust
                && (idle.connection.route.class == AddressClass::Public
                    || target.reached_class() != Some(AddressClass::Public))
        };
        loop {
            let Idle { mut connection, since } = {
                let mut state = lock(&self.state);
                let list = state.connections.get_mut(target.key())?;
                let at = list.iter().rposition(is_usable)?;
                list.remove(at)
            };
            if since.elapsed() < self.limits.idle_timeout && connection.is_ready(cx) {
                return Some(connection);
            }
        }
    }

    /// Returns a connection to the pool, if it can take another request and the pool has room.
    pub(super) fn put(self: &Arc<Self>, key: &Arc<ConnectionKey>, mut connection: Box<PooledConnection>) {
        if !connection.is_ready(&mut Context::from_waker(Waker::noop())) {
            return;
        }
        // Without a runtime no task can close it later.
        let Ok(runtime) = Handle::try_current() else { return };
        let is_watched = {
            let mut state = lock(&self.state);
            if connection.generation != self.generation.load(Ordering::SeqCst) {
                return; // the current settings may not allow it
            }
            let idle = Idle { connection, since: Instant::now() };
            match state.connections.get_mut(key) {
                Some(list) if list.len() < self.limits.idle_per_host => list.push(idle),
                Some(_) => {}
                None if self.limits.idle_per_host == 0 => {}
                None => {
                    state.connections.insert(key.clone(), vec![idle]);
                }
            }
            std::mem::replace(&mut state.has_reaper, true)
        };
        if !is_watched {
            // Not under the lock: a runtime that is shutting down drops the task at once, which takes the lock.
            spawn(&runtime, run_reaper(ReaperGuard(Arc::downgrade(self)), self.limits.idle_timeout));
        }
    }

    /// Closes connections that are too old or closed by their server. Returns whether any are left.
    fn close_expired(&self) -> bool {
        let mut state = lock(&self.state);
        let mut cx = Context::from_waker(Waker::noop());
        for list in state.connections.values_mut() {
            list.retain_mut(|idle| {
                idle.since.elapsed() < self.limits.idle_timeout && idle.connection.is_ready(&mut cx)
            });
        }
        state.connections.retain(|_, list| !list.is_empty());
        state.has_reaper = !state.connections.is_empty();
        state.has_reaper
    }
}

/// Closes expired idle connections periodically. Finishes with the last connection, or with the pool.
async fn run_reaper(mut guard: ReaperGuard, idle_timeout: Duration) {
    let interval = (idle_timeout / 2).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep(interval).await;
        let Some(pool) = guard.0.upgrade() else { return };
        if !pool.close_expired() {
            // A new task may already be running: do not reset its flag.
            guard.0 = Weak::new();
            return;
        }
    }
}

/// Guard of the background task that closes idle connections. If the runtime ends before the pool, another task may be
/// started.
struct ReaperGuard(Weak<Pool>);

impl Drop for ReaperGuard {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            lock(&pool.state).has_reaper = false;
        }
    }
}
