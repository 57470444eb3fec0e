//! Connection pool: no task per connection, no timer per request.
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

use super::address_class::Class;
use super::body::{Body, ResponseBody};
use super::builder::Builder;
use super::denials::Ear;
use super::dial::{Dialer, Stream, Way};
use super::error::{EgressError, EgressErrorKind};
use super::policy::Trust;
use super::proxy::Proxy;
use super::target::{Place, Target};
use crate::lock::lock;
use crate::server::start;

/// Read buffer size: the limit of a response head, and of one body chunk.
const BUFFER: usize = 64 * 1024;

/// Outgoing HTTP client with a [policy](super::Policy). Cheap to clone; clones share connections.
///
/// ```no_run
/// use linchpin::egress::{Body, Egress, Target};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let egress = Egress::new();
/// let target = Target::typed("https://example.com/")?;
/// let response = egress.send(http::Request::new(Body::empty()), &target).await?;
/// let page = response.into_body().read_to_end(1024 * 1024).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
    /// Listener for denials.
    pub(super) ear: Option<Arc<Ear>>,
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
    /// Creates an egress with the default settings.
    pub fn new() -> Self {
        Builder::default().finish()
    }

    /// Returns a builder for custom settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn with(dialer: Dialer, limits: Limits) -> Self {
        let pool = Arc::new(Pool { limits, kept: Mutex::default(), changes: AtomicU64::new(0) });
        Egress { shared: Arc::new(Shared { dialer: RwLock::new(Arc::new(dialer)), pool }), ear: None }
    }

    pub(super) fn dialer(&self) -> Arc<Dialer> {
        self.shared.dialer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces policy, proxy, certificates and connect timeout by those of `other`, at once and for all clones.
    /// Idle connections are closed; connections in use are closed when their response is finished.
    pub fn change(&self, other: &Egress) {
        *self.shared.dialer.write().unwrap_or_else(PoisonError::into_inner) = other.dialer();
        let pool = &self.shared.pool;
        pool.changes.fetch_add(1, Ordering::SeqCst); // first, so that connections in use do not return
        lock(&pool.kept).places.clear();
    }

    /// Checks the address in a URL against the policy, without connecting. Names other than `localhost` are not
    /// resolved: their addresses are checked when a connection is opened.
    ///
    /// # Errors
    ///
    /// Fails with the error that [`send`](Egress::send) would return.
    pub fn check(&self, target: &Target) -> Result<(), EgressError> {
        self.dialer().check_address(target, target.trust())
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
        let place = target.place();
        *request.uri_mut() = target.request_uri();
        request.headers_mut().insert(HOST, place.authority.clone());
        while let Some(line) = poll_fn(|cx| Poll::Ready(self.shared.pool.take(target, cx))).await {
            line.address(&mut request, target);
            match line.exchange(request).await {
                Ok((response, line)) => return self.answer(response, line, target),
                // It was closed while idle, and nothing has been written: use the next one, or a new one.
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(broken(target, error)),
            }
        }
        let line = self.open(target).await?;
        line.address(&mut request, target);
        match line.exchange(request).await {
            Ok((response, line)) => self.answer(response, line, target),
            Err((error, _)) => Err(broken(target, error)),
        }
    }

    async fn open(&self, target: &Target) -> Result<Box<Line>, EgressError> {
        let changes = self.shared.pool.changes.load(Ordering::SeqCst);
        let trust = target.trust();
        let dialled = self.dialer().dial(target, trust).await;
        let (stream, way) = dialled.inspect_err(|error| {
            if matches!(error.kind(), EgressErrorKind::Refused(_)) {
                self.deny(&target.host(), error.address(), &error.to_string());
            }
        })?;
        Line::open(stream, way, trust, changes).await.map_err(|error| broken(target, error))
    }

    /// Connects without sending anything, to learn the address class of the target. The first request uses the
    /// connection.
    pub(crate) async fn reach(&self, target: &Target) -> Result<(), EgressError> {
        let line = self.open(target).await?;
        target.reached(line.way.class);
        self.shared.pool.put(target.place(), line);
        Ok(())
    }

    fn answer(
        &self,
        response: Response<Incoming>,
        line: Box<Line>,
        target: &Target,
    ) -> Result<Response<ResponseBody>, EgressError> {
        let response = match line.handed_to(target) {
            Some(proxy) => proxy.check(response, target)?,
            None => response,
        };
        target.reached(line.way.class);
        self.note(target, line.trust, &line.way);
        let (pool, place) = (self.shared.pool.clone(), target.place().clone());
        Ok(response.map(|body| ResponseBody::new(body, line, pool, place)))
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        lock(&self.shared.pool.kept).places.values().map(Vec::len).sum()
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("idle", &self.idle_connections()).finish_non_exhaustive()
    }
}

fn broken(target: &Target, error: hyper::Error) -> EgressError {
    let what = if error.is_parse() { "the response is not HTTP/1.1" } else { "the connection broke" };
    let text = format!("no response from `{}`: {what} ({error})", target.host());
    EgressError::new(EgressErrorKind::Http, text).because(error)
}

/// A connection and its request sender. It is large and moved often, hence always boxed.
pub(super) struct Line {
    connection: Connection<TokioIo<Stream>, Body>,
    sender: SendRequest<Body>,
    way: Way,
    /// Source of the URL for which it was opened.
    trust: Trust,
    /// Number of reconfigurations before it was opened.
    changes: u64,
    /// The connection has finished and must not be polled again.
    over: bool,
}

impl Line {
    async fn open(stream: Stream, way: Way, trust: Trust, changes: u64) -> Result<Box<Line>, hyper::Error> {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await?;
        Ok(Box::new(Line { connection, sender, way, trust, changes, over: false }))
    }

    /// Returns the proxy that forwards plain requests to the target.
    fn handed_to(&self, target: &Target) -> Option<&Proxy> {
        self.way.proxy.as_deref().filter(|_| !target.is_https())
    }

    /// Sets the URI and proxy authentication in the form that the peer, server or proxy, expects.
    fn address(&self, request: &mut Request<Body>, target: &Target) {
        if target.is_https() {
            return; // a tunnel or a direct connection
        }
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let Some(proxy) = self.handed_to(target) else {
            *request.uri_mut() = target.request_uri();
            return;
        };
        *request.uri_mut() = target.whole_uri();
        if let Some(value) = proxy.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
    }

    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.over {
            // The error, if any, also reaches the future that waits for the response.
            self.over = Pin::new(&mut self.connection).poll(cx).is_ready();
        }
    }

    /// Sends one request and waits for the response head. The error contains the request if nothing of it was
    /// written.
    async fn exchange(
        mut self: Box<Self>,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, Box<Line>), (hyper::Error, Option<Request<Body>>)> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let outcome = poll_fn(|cx| {
            // Drive the connection first, so that one poll suffices if the response has already arrived.
            self.drive(cx);
            answer.as_mut().poll(cx)
        });
        match outcome.await {
            Ok(response) => Ok((response, self)),
            Err(mut error) => {
                let unsent = error.take_message();
                Err((error.into_error(), unsent))
            }
        }
    }

    /// Returns whether it can take a request, as far as is known.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        !self.over && self.sender.is_ready()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub idle_timeout: Duration,
    pub idle_per_host: usize,
}

/// Idle connections.
pub(super) struct Pool {
    limits: Limits,
    kept: Mutex<Kept>,
    /// Number of reconfigurations.
    changes: AtomicU64,
}

#[derive(Default)]
struct Kept {
    places: HashMap<Arc<Place>, Vec<Idle>>,
    /// Whether the task that closes old connections is running.
    watched: bool,
}

struct Idle {
    line: Box<Line>,
    since: Instant,
}

impl Pool {
    /// Takes the most recently used connection to the target that can take a request.
    fn take(&self, target: &Target, cx: &mut Context<'_>) -> Option<Box<Line>> {
        let trust = target.trust();
        // A name that was public before must not lead to a private or local address now.
        let fits = |idle: &Idle| {
            idle.line.trust == trust
                && (idle.line.way.class == Class::Public || target.home() != Some(Class::Public))
        };
        loop {
            let Idle { mut line, since } = {
                let mut kept = lock(&self.kept);
                let list = kept.places.get_mut(target.place())?;
                let at = list.iter().rposition(fits)?;
                list.remove(at)
            };
            if since.elapsed() < self.limits.idle_timeout && line.is_ready(cx) {
                return Some(line);
            }
        }
    }

    /// Returns a connection to the pool, if it can take another request and the pool has room.
    pub(super) fn put(self: &Arc<Self>, place: &Arc<Place>, mut line: Box<Line>) {
        if !line.is_ready(&mut Context::from_waker(Waker::noop())) {
            return;
        }
        // Without a runtime no task can close it later.
        let Ok(runtime) = Handle::try_current() else { return };
        let is_watched = {
            let mut kept = lock(&self.kept);
            if line.changes != self.changes.load(Ordering::SeqCst) {
                return; // the current settings may not allow it
            }
            let idle = Idle { line, since: Instant::now() };
            match kept.places.get_mut(place) {
                Some(list) if list.len() < self.limits.idle_per_host => list.push(idle),
                Some(_) => {}
                None if self.limits.idle_per_host == 0 => {}
                None => {
                    kept.places.insert(place.clone(), vec![idle]);
                }
            }
            std::mem::replace(&mut kept.watched, true)
        };
        if !is_watched {
            // Not under the lock: a runtime that is shutting down drops the task at once, which takes the lock.
            start(&runtime, close_old(Watch(Arc::downgrade(self)), self.limits.idle_timeout));
        }
    }

    /// Closes connections that are too old or closed by their server. Returns whether any are left.
    fn sweep(&self) -> bool {
        let mut kept = lock(&self.kept);
        let mut cx = Context::from_waker(Waker::noop());
        for list in kept.places.values_mut() {
            list.retain_mut(|idle| {
                idle.since.elapsed() < self.limits.idle_timeout && idle.line.is_ready(&mut cx)
            });
        }
        kept.places.retain(|_, list| !list.is_empty());
        kept.watched = !kept.places.is_empty();
        kept.watched
    }
}

/// Closes old connections periodically. Finishes with the last connection, or with the pool.
async fn close_old(mut watch: Watch, idle_timeout: Duration) {
    let pause = (idle_timeout / 2).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep(pause).await;
        let Some(pool) = watch.0.upgrade() else { return };
        if !pool.sweep() {
            // A new task may already be running: do not reset its flag.
            watch.0 = Weak::new();
            return;
        }
    }
}

/// Guard of the closing task. If the runtime ends before the pool, another task may be started.
struct Watch(Weak<Pool>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            lock(&pool.kept).watched = false;
        }
    }
}
