//! Describing the way to a server on the network.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::link::{HttpLine, Link};
use crate::auth::Authorize;
use crate::egress::{Egress, Redirects, Target};
use crate::http::names;
use crate::server::BoxFuture;
use crate::transport::{Direction, Line, Opening, Transport, Wire};

/// Headers that belong to the transport.
const OWN: [HeaderName; 11] = [
    header::ACCEPT,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    names::LAST_EVENT_ID,
    names::METHOD,
    names::NAME,
    names::PROTOCOL_VERSION,
    names::SESSION_ID,
];

/// A request for which headers are wanted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeadersRequest {
    /// `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// Where it goes.
    pub url: Arc<str>,
    /// The server refused the request with other headers, and this is its `WWW-Authenticate`. It is sent once more
    /// with the headers that are given now.
    pub refused: Option<String>,
}

pub(super) type Headers = Vec<(String, String)>;
pub(super) type Provider = dyn Fn(HeadersRequest) -> BoxFuture<crate::Result<Headers>> + Send + Sync;
type OnMessage = dyn Fn(Direction, &str) + Send + Sync;
type OnDiagnostic = dyn Fn(&str) + Send + Sync;

/// The way to a server on the network. [`crate::Client::http`] has one, with the same options.
#[derive(Clone)]
#[must_use = "a transport does nothing until a client is connected over it"]
pub struct Http {
    url: String,
    /// Whether only HTTP+SSE is spoken.
    pub(super) legacy: bool,
    pub(super) headers: HeaderMap,
    pub(super) provider: Option<Arc<Provider>>,
    pub(super) authorize: Option<Arc<dyn Authorize>>,
    pub(super) egress: Egress,
    pub(super) redirects: Redirects,
    pub(super) read_timeout: Duration,
    pub(super) max_reconnects: usize,
    pub(super) on_message: Option<Arc<OnMessage>>,
    pub(super) on_diagnostic: Option<Arc<OnDiagnostic>>,
    /// What is wrong with the options.
    fault: Option<String>,
}

impl Http {
    /// The server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Http {
            url: url.into(),
            legacy: false,
            headers: HeaderMap::new(),
            provider: None,
            authorize: None,
            egress: Egress::default(),
            redirects: Redirects::anywhere(3),
            read_timeout: Duration::from_mins(5),
            max_reconnects: 20,
            on_message: None,
            on_diagnostic: None,
            fault: None,
        }
    }

    /// A server that speaks HTTP+SSE, as before Streamable HTTP. [`Self::new`] finds that out by itself.
    pub fn sse(url: impl Into<String>) -> Self {
        Http { legacy: true, ..Self::new(url) }
    }

    /// A header of every request. What it says is not shown anywhere.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        match checked(name.as_ref(), value.as_ref()) {
            Ok((name, value)) => {
                self.headers.insert(name, value);
            }
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
        self
    }

    /// Is asked for headers before each request: `|request| async { Ok([("authorization", token().await?)]) }`. If
    /// the server refuses a request with 401 it is asked once more, and told so.
    pub fn headers_with<F, Fut, H, K, V>(mut self, provider: F) -> Self
    where
        F: Fn(HeadersRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = crate::Result<H>> + Send + 'static,
        H: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        self.provider = Some(Arc::new(move |request| {
            let headers = provider(request);
            Box::pin(async move {
                let headers = headers.await?.into_iter();
                Ok(headers.map(|(name, value)| (name.into(), value.into())).collect())
            })
        }));
        self
    }

    /// How the client says who it is: [`crate::auth::OAuth`], [`crate::auth::Bearer`] and others. Requests that the
    /// server refuses are sent again when that has helped.
    pub fn auth(mut self, authorize: impl Authorize) -> Self {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// What opens connections, in place of one of its own with the safe defaults.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Connects through an HTTP proxy, `http://[user:password@]host:port`. It takes the place of [`Self::egress`], whose
    /// settings can name a proxy, too.
    pub fn proxy(mut self, url: &str) -> Self {
        match Egress::builder().proxy(url).build() {
            Ok(egress) => self.egress = egress,
            Err(error) => self.fault = self.fault.or(Some(error.to_string())),
        }
        self
    }

    /// Which redirects are followed: three to anywhere that the egress allows, when nothing is said. Elsewhere a request
    /// goes without anything that says who asks, but with its arguments; [`Redirects::same_origin`] keeps those, too.
    pub fn redirects(mut self, redirects: Redirects) -> Self {
        self.redirects = redirects;
        self
    }

    /// How long a stream may be silent before it counts as cut; 5 minutes when nothing is said.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How often in a row a stream is taken up again that was cut and then brings nothing; 20 when nothing is said.
    pub fn max_reconnects(mut self, most: usize) -> Self {
        self.max_reconnects = most;
        self
    }

    /// Is told every message as it is sent and received, as JSON text. The session's id is never in it.
    pub fn on_message(mut self, told: impl Fn(Direction, &str) + Send + Sync + 'static) -> Self {
        self.on_message = Some(Arc::new(told));
        self
    }

    /// Is told, a line at a time, what happens on the way: answers and their status, streams that are cut and taken
    /// up again, sessions that are renewed. Nothing secret is in it.
    pub fn on_diagnostic(mut self, told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_diagnostic = Some(Arc::new(told));
        self
    }

    fn target(&self) -> io::Result<Target> {
        if let Some(fault) = &self.fault {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault.clone()));
        }
        Target::typed(&self.url)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    }

    async fn connect(&self, wire: Wire) -> io::Result<Box<dyn Line>> {
        let link = Link::open(self.clone(), self.target()?, wire);
        let hold = HttpLine::new(link.clone());
        if self.legacy {
            link.find_endpoint().await.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(Box::new(hold))
    }
}

/// A header that a caller may set.
pub(crate) fn checked(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(key) = HeaderName::try_from(name) else {
        return Err(format!("`{name}` cannot be the name of a header"));
    };
    if OWN.contains(&key) || key.as_str().starts_with(names::PARAM_PREFIX) {
        return Err(format!("the header `{key}` is set by the transport and cannot be given"));
    }
    let Ok(mut value) = HeaderValue::from_str(value) else {
        return Err(format!("the value of the header `{key}` has characters that a header cannot have"));
    };
    value.set_sensitive(true);
    Ok((key, value))
}

impl Transport for Http {
    fn open(&self, wire: Wire) -> Opening<'_> {
        Box::pin(self.connect(wire))
    }

    /// Where it is: the URL without what may be secret in it.
    fn name(&self) -> String {
        self.target().map_or_else(|_| "a server on the network".to_owned(), |target| target.to_string())
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("server", &self.name()).finish_non_exhaustive()
    }
}
