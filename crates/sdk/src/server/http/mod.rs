//! Serving over HTTP: one endpoint for clients of every revision.
//!
//! A request comes in through a `listener` (or another server, through [`HttpService`]), is let in by `guard`, and goes
//! to `post` or `get`. `post` decides which era it belongs to; `exchange` runs it and answers with one message or a
//! stream, which a `carrier` writes. `sessions` remembers clients of the session era, each with its `stream`s, and
//! `events` what those have sent.

mod admission;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod carrier;
mod endpoint;
mod events;
mod exchange;
mod frame;
mod get;
mod guard;
pub(super) mod headers;
mod key;
mod legacy;
mod listen;
pub(super) mod listener;
mod options;
mod post;
#[cfg(feature = "auth")]
mod protect;
mod reply;
mod service;
mod sessions;
mod signals;
mod store;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod watch;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::uri::PathAndQuery;

pub use body::{Bodies, Body, Unread, Whole};
pub use events::{EventStore, KeptEvent};
pub use guard::{Guard, Stranger};
pub use key::SessionKey;
pub use listen::Listening;
pub use listener::{Addresses, Listener, client_network};
pub use options::Refusal;
pub use service::HttpService;
pub use store::{SavedSession, SessionStore};
#[cfg(feature = "tls")]
pub use tls::Tls;

use self::endpoint::Endpoint;
use self::options::Options;
use super::report::{has_subscriber, print};
use super::{Server, Service};
use crate::{Error, Result};

impl Server {
    /// Serves clients of every revision at `http://{address}/mcp`, until the process is asked to end (Ctrl-C or
    /// SIGTERM) and every request is answered. Reports the URL when it is ready: with `tracing`, and on standard error
    /// if the process has no subscriber.
    ///
    /// Only names of this machine are served until more are allowed: see [`Self::http`].
    pub async fn serve(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<()> {
        self.build()?.serve(address).await
    }

    /// Serves over HTTP, with settings of its own. What is wrong with the server is told when it is bound.
    pub fn http(self) -> Http {
        Http { service: self.build(), options: Options::default(), fault: None }
    }
}

impl Service {
    /// As [`Server::serve`].
    pub async fn serve(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<()> {
        let name = self.settings().info.name.clone();
        let listening = self.http().bind(address).await?;
        let url = listening.url();
        tracing::info!(server.name = name, url, "serving");
        if !has_subscriber() {
            print(format_args!("{name}: serving at {url}"));
        }
        listening.run().await
    }

    /// As [`Server::http`].
    pub fn http(&self) -> Http {
        Http { service: Ok(self.clone()), options: Options::default(), fault: None }
    }
}

/// An endpoint that is being described. [`Http::bind`], [`Http::into_service`] or `into_router` finishes it.
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
#[must_use = "nothing is served until it is bound"]
pub struct Http {
    service: Result<Service>,
    options: Options,
    /// The first setting that makes no sense.
    fault: Option<String>,
}

impl Http {
    /// The path of the endpoint; `/mcp` when nothing is said.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.options.path = path.into();
        let parsed: Option<PathAndQuery> = self.options.path.parse().ok();
        if !parsed.is_some_and(|parsed| parsed.path() == self.options.path && parsed.path().starts_with('/'))
        {
            let text = "is no path: it begins with / and has no ?, # or characters that no URL has";
            self.fail(format!("{:?} {text}", self.options.path));
        }
        self
    }

    fn fail(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// Serves clients of the first revision, too, which know only a stream of events and a POST for each message: at
    /// the path of the endpoint and at `/sse`.
    pub fn legacy_sse(mut self) -> Self {
        self.options.legacy = Some("/sse".into());
        self
    }

    /// Lets in requests for this host besides the names of this machine: `mcp.example.com`, or with a port if only
    /// that one is meant.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        if let Err(fault) = self.options.guard.allow_host(host.as_ref()) {
            self.fail(fault);
        }
        self
    }

    /// Lets in requests for any host: for a server behind something that has checked it already. Without such a
    /// thing a page on the web can reach the server through the browser of anybody who can.
    pub fn allow_any_host(mut self) -> Self {
        self.options.guard.allow_any_host();
        self
    }

    /// Lets pages of this origin use the server: `https://app.example.com`. Others than the server's own are turned
    /// away when nothing is said.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        if let Err(fault) = self.options.guard.allow_origin(origin.as_ref()) {
            self.fail(fault);
        }
        self
    }

    /// Gives clients of the session era no sessions: each of their requests stands alone, and nobody can be asked.
    pub fn stateless(mut self) -> Self {
        self.options.sessions = false;
        self
    }

    /// A call that takes longer becomes a stream that its client can come back to, where the revision has that; one
    /// second when nothing is said.
    pub fn stream_after(mut self, time: Duration) -> Self {
        self.options.stream_after = time;
        self
    }

    /// How often a quiet stream shows that it lives; 25 seconds when nothing is said.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.options.keep_alive = time.max(Duration::from_millis(1));
        self
    }

    /// How long a session may be idle; 30 minutes when nothing is said.
    pub fn session_ttl(mut self, time: Duration) -> Self {
        self.options.bounds.ttl = time;
        self
    }

    /// Sessions in all, 10,000 when nothing is said. For one more the session goes that is idle for longest.
    pub fn max_sessions(mut self, most: usize) -> Self {
        self.options.bounds.most = most.max(1);
        self
    }

    /// Sessions of one principal; 100 when nothing is said.
    pub fn max_sessions_per_principal(mut self, most: usize) -> Self {
        self.options.bounds.most_of_one = most.max(1);
        self
    }

    /// Sets the maximum number of connections. Default: 16,384. It is never more than three quarters of the limit of open
    /// files at the start. When it is reached, connections are closed for new ones: those that are idle, or whose request
    /// arrives or response is read too slowly. If there are none, new ones are refused with 503.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.options.connections.most = most.max(1);
        self
    }

    /// Sets the maximum number of connections from one IPv4 address or IPv6 /64 network. Default: no limit of its own, since
    /// many clients may share an address.
    pub fn max_connections_per_address(mut self, most: usize) -> Self {
        self.options.connections.most_of_one_address = most.max(1);
        self
    }

    /// How long a connection may be silent before its first request (5 seconds when nothing is said), take for the
    /// head of a request (10 seconds), and be idle between requests (75 seconds).
    pub fn connection_timeouts(mut self, first_byte: Duration, head: Duration, idle: Duration) -> Self {
        let own = &mut self.options.connections;
        (own.first_byte, own.head, own.idle) = (first_byte, head, idle);
        self
    }

    /// How long the body of a request may take, with a second more for every 16 KiB that have come; 10 seconds when
    /// nothing is said.
    pub fn body_timeout(mut self, time: Duration) -> Self {
        self.options.body_timeout = time;
        self
    }

    /// How long a client may keep from reading before it is cut off; 30 seconds when nothing is said.
    pub fn write_timeout(mut self, time: Duration) -> Self {
        self.options.connections.write = time;
        self
    }

    /// Finds out who sends a request, by its headers: what one principal is given is refused from another.
    /// `Ok(None)` lets somebody in whom nobody knows.
    pub fn principal(
        mut self,
        identify: impl Fn(&Parts) -> Result<Option<String>, Refusal> + Send + Sync + 'static,
    ) -> Self {
        self.options.identify = Some(Arc::new(identify));
        self
    }

    /// Where events are kept for clients whose stream was cut; in memory, bounded, when nothing is said.
    pub fn event_store(mut self, store: impl EventStore) -> Self {
        self.options.events = Arc::new(store);
        self
    }

    /// Where sessions are kept so that they go on in another process; nowhere when nothing is said.
    pub fn session_store(mut self, store: impl SessionStore) -> Self {
        self.options.store = Some(Arc::new(store));
        self
    }

    fn endpoint(self) -> Result<Arc<Endpoint>> {
        let both = self.options.auth.is_some() && self.options.identify.is_some();
        let both = both.then(|| "either `auth` or `principal` says who asks, not both".to_owned());
        if let Some(fault) = self.fault.or(both) {
            return Err(Error::setup(fault));
        }
        let service = self.service?;
        let catalog = service.catalog();
        let unguarded = catalog.tools.iter().find(|tool| !tool.scopes.is_empty());
        if let Some(tool) = unguarded.filter(|_| self.options.auth.is_none()) {
            let name = &tool.definition.name;
            let text = format!(
                "the tool `{name}` needs scopes, and without `auth` everybody could call it over HTTP"
            );
            return Err(Error::setup(text));
        }
        Ok(Endpoint::new(service, self.options))
    }

    /// Binds an address, which is not served before [`Listening::run`]. Port 0 is any free one.
    pub async fn bind(self, address: impl tokio::net::ToSocketAddrs + Debug) -> Result<Listening> {
        let endpoint = self.endpoint()?;
        Listening::new(listener::bind(address).await?, endpoint)
    }

    /// The endpoint as a service for `tower` and whatever builds on it. Timeouts of connections are up to the server
    /// around it.
    pub fn into_service(self) -> Result<HttpService> {
        Ok(HttpService::new(self.endpoint()?))
    }
}
