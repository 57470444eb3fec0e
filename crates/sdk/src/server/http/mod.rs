//! Streamable HTTP server: one endpoint for clients of every revision.
//!
//! A request arrives through a `listener` (or another HTTP server, through [`HttpService`]), passes the
//! `origin_guard`, and goes to `requests::post` or `requests::get`. `post` determines its era; `exchange` runs it and
//! responds with one JSON message or an SSE stream (`streams::body`). `sessions` holds the sessions of the session era
//! with their `streams`; `event_store` stores the events of those streams for resumption.

mod authentication;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod bound;
mod endpoint;
pub(super) mod listener;
pub(super) mod mirrored_headers;
mod options;
mod origin_guard;
mod requests;
mod responses;
mod service;
mod sessions;
mod streams;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::uri::PathAndQuery;

pub use body::{Body, BodyReadError, BodyReader, ReadBody};
pub use bound::BoundEndpoint;
#[cfg(feature = "tls")]
pub use listener::tls::Tls;
pub use listener::{ConnectionAddresses, Listener, client_network};
pub use options::PrincipalError;
pub use origin_guard::{OriginError, OriginGuard};
pub use service::HttpService;
pub use sessions::id::SessionKey;
pub use sessions::store::{SavedSession, SessionStore};
pub(in crate::server) use streams::SessionStream;
pub use streams::event_store::{EventStore, StoredEvent};

use self::endpoint::Endpoint;
use self::options::EndpointOptions;
use super::request::observe::{has_subscriber, print_to_stderr};
use super::{Server, Service};
use crate::{Error, Result};

impl Server {
    /// Serves clients of every revision at `http://{address}/mcp` until the process receives Ctrl-C or SIGTERM and all
    /// running requests are done. Reports the URL when ready: with `tracing`, and on standard error if the process has
    /// no subscriber.
    ///
    /// Only host names of this machine are accepted; see [`Self::http`] to allow more.
    pub async fn serve(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<()> {
        self.build()?.serve(address).await
    }

    /// Returns a builder for the HTTP endpoint. Errors in the server definition are reported when it is bound.
    pub fn http(self) -> HttpEndpoint {
        HttpEndpoint { service: self.build(), options: EndpointOptions::default(), error: None }
    }
}

impl Service {
    /// Serves HTTP clients until Ctrl-C or SIGTERM; see [`Server::serve`].
    pub async fn serve(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<()> {
        let name = self.settings().info.name.clone();
        let listening = self.http().bind(address).await?;
        let url = listening.url();
        tracing::info!(server.name = name, url, "serving");
        if !has_subscriber() {
            print_to_stderr(format_args!("{name}: serving at {url}"));
        }
        listening.run().await
    }

    /// Returns a builder for the HTTP endpoint of this server; see [`Server::http`].
    pub fn http(&self) -> HttpEndpoint {
        HttpEndpoint { service: Ok(self.clone()), options: EndpointOptions::default(), error: None }
    }
}

/// Builder of an HTTP endpoint, completed by [`HttpEndpoint::bind`], [`HttpEndpoint::into_service`] or `into_router`.
///
/// ```no_run
/// # async fn example() -> linchpin::Result {
/// use linchpin::Server;
///
/// let endpoint = Server::new("demo", "1.0.0")
///     .tool("greet", "Greets", || async { "hello" })
///     .http()
///     .allow_host("mcp.example.com")
///     .bind("127.0.0.1:8080")
///     .await?;
/// println!("{}", endpoint.url());
/// endpoint.run().await
/// # }
/// ```
#[must_use = "an HTTP endpoint serves nothing until it is bound"]
pub struct HttpEndpoint {
    service: Result<Service>,
    options: EndpointOptions,
    /// First invalid setting of the endpoint, reported when it is bound.
    error: Option<String>,
}

impl HttpEndpoint {
    /// Sets the URL path of the endpoint. Default: `/mcp`.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.options.path = path.into();
        let parsed: Option<PathAndQuery> = self.options.path.parse().ok();
        if !parsed.is_some_and(|parsed| parsed.path() == self.options.path && parsed.path().starts_with('/'))
        {
            self.set_error(format!(
                "{:?} is not a valid path: it must start with / and contain only path characters",
                self.options.path
            ));
        }
        self
    }

    fn set_error(&mut self, fault: String) {
        self.error.get_or_insert(fault);
    }

    /// Also serves clients of the first revision (HTTP+SSE), at the path of the endpoint and at `/sse`.
    pub fn legacy_sse(mut self) -> Self {
        self.options.legacy = Some("/sse".into());
        self
    }

    /// Allows requests for this host in addition to the names of this machine: `mcp.example.com`, or with a port to
    /// allow only that port.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        if let Err(fault) = self.options.guard.allow_host(host.as_ref()) {
            self.set_error(fault);
        }
        self
    }

    /// Allows requests for any host, for a server behind a proxy that checks it. Without such a proxy, any web page can
    /// reach the server through the browser of a user who can reach it (DNS rebinding).
    pub fn allow_any_host(mut self) -> Self {
        self.options.guard.allow_any_host();
        self
    }

    /// Allows pages of this origin to use the server: `https://app.example.com`. Default: only the server's own origin.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        if let Err(fault) = self.options.guard.allow_origin(origin.as_ref()) {
            self.set_error(fault);
        }
        self
    }

    /// Replaces the check of the `Host` and `Origin` headers, with all hosts and origins that were allowed before.
    pub fn origin_guard(mut self, guard: OriginGuard) -> Self {
        self.options.guard = guard;
        self
    }

    /// Disables sessions: each request of a session-era client stands alone, and handlers cannot send requests to the
    /// client.
    pub fn stateless(mut self) -> Self {
        self.options.sessions = false;
        self
    }

    /// Sets the time after which the response to a running call becomes a resumable stream, where the revision supports
    /// that. Default: 1 s.
    pub fn stream_after(mut self, time: Duration) -> Self {
        self.options.stream_after = time;
        self
    }

    /// Sets the interval of keep-alive comments on a quiet stream. Default: 25 s.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.options.keep_alive = time.max(Duration::from_millis(1));
        self
    }

    /// Sets how long a session may be idle. Default: 30 min.
    pub fn session_ttl(mut self, time: Duration) -> Self {
        self.options.session_limits.ttl = time;
        self
    }

    /// Sets the maximum number of MCP sessions of the endpoint. Default: 10,000. At the limit, a new session evicts the
    /// one that is idle for longest.
    pub fn max_sessions(mut self, max: usize) -> Self {
        self.options.session_limits.max = max.max(1);
        self
    }

    /// Sets the maximum number of MCP sessions per principal. Default: 100.
    pub fn max_sessions_per_principal(mut self, max: usize) -> Self {
        self.options.session_limits.max_per_principal = max.max(1);
        self
    }

    /// Sets the maximum number of connections, at most three quarters of the open-file limit at the start. Default:
    /// 16,384. At the limit, connections are closed for new ones if they are idle, or if their request arrives or their
    /// response is read too slowly. If there are none, new connections are refused with 503.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.options.connections.max = max.max(1);
        self
    }

    /// Sets the maximum number of connections from one IPv4 address or IPv6 /64 network. Default: no separate limit,
    /// since many clients may share an address.
    pub fn max_connections_per_address(mut self, max: usize) -> Self {
        self.options.connections.max_per_address = max.max(1);
        self
    }

    /// Sets how long a connection may be silent before its first request (default: 5 s), take for the head of a request
    /// (default: 10 s), and be idle between requests (default: 75 s).
    pub fn connection_timeouts(mut self, first_byte: Duration, head: Duration, idle: Duration) -> Self {
        let limits = &mut self.options.connections;
        (limits.first_byte, limits.head, limits.idle) = (first_byte, head, idle);
        self
    }

    /// Sets how long the body of a request may take, plus one second for every 16 KiB received. Default: 10 s.
    pub fn body_timeout(mut self, time: Duration) -> Self {
        self.options.body_timeout = time;
        self
    }

    /// Sets how long a client may stop reading before its connection is closed. Default: 30 s.
    pub fn write_timeout(mut self, time: Duration) -> Self {
        self.options.connections.write = time;
        self
    }

    /// Sets a function that identifies the principal of a request from its headers. Sessions, tasks and state of one
    /// principal are not accessible to another. `Ok(None)` accepts an anonymous request.
    pub fn principal(
        mut self,
        identify: impl Fn(&Parts) -> Result<Option<String>, PrincipalError> + Send + Sync + 'static,
    ) -> Self {
        self.options.principal_resolver = Some(Arc::new(identify));
        self
    }

    /// Sets the event store, from which clients resume SSE streams. Default: a bounded store in memory.
    pub fn event_store(mut self, store: impl EventStore) -> Self {
        self.options.events = Arc::new(store);
        self
    }

    /// Sets a session store, so that sessions can continue in another process. Default: none.
    pub fn session_store(mut self, store: impl SessionStore) -> Self {
        self.options.store = Some(Arc::new(store));
        self
    }

    fn endpoint(self) -> Result<Arc<Endpoint>> {
        let has_both = self.options.auth.is_some() && self.options.principal_resolver.is_some();
        let conflict = has_both.then(|| "set either `auth` or `principal`, not both".to_owned());
        if let Some(fault) = self.error.or(conflict) {
            return Err(Error::setup(fault));
        }
        let service = self.service?;
        let catalog = service.catalog();
        let unguarded = catalog.tools.iter().find(|tool| !tool.scopes.is_empty());
        if let Some(tool) = unguarded.filter(|_| self.options.auth.is_none()) {
            let name = &tool.definition.name;
            let text =
                format!("the tool `{name}` requires scopes, but the endpoint has no `auth`: configure it");
            return Err(Error::setup(text));
        }
        Ok(Endpoint::new(service, self.options))
    }

    /// Binds the endpoint to an address; [`BoundEndpoint::run`] serves it. Port 0 selects a free port.
    pub async fn bind(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<BoundEndpoint> {
        let endpoint = self.endpoint()?;
        BoundEndpoint::new(listener::bind(address).await?, endpoint)
    }

    /// Returns the endpoint as a `tower` service. Connection timeouts are up to the surrounding server.
    pub fn into_service(self) -> Result<HttpService> {
        Ok(HttpService::new(self.endpoint()?))
    }
}
