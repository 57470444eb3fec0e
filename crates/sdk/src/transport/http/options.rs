//! HTTP transport of a client, [`HttpTransport`], with its options.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::connection::{HttpConnection, HttpHandle};
use crate::auth::Authorize;
use crate::egress::{Egress, Redirects, Target};
use crate::http::header_names;
use crate::server::BoxFuture;
use crate::transport::{Direction, OpenFuture, Transport, TransportHandle, Wire};

/// Headers that the transport sets itself; options cannot set them.
const TRANSPORT_HEADERS: [HeaderName; 11] = [
    header::ACCEPT,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    header_names::LAST_EVENT_ID,
    header_names::METHOD,
    header_names::NAME,
    header_names::PROTOCOL_VERSION,
    header_names::SESSION_ID,
];

/// HTTP request for which the header callback of the application returns additional headers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeadersRequest {
    /// HTTP method: `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// URL of the server.
    pub url: Arc<str>,
    /// `WWW-Authenticate` value of the server, if it rejected the request with the previous headers. The request is
    /// sent once more with the new headers.
    pub challenge: Option<String>,
}

pub(super) type Headers = Vec<(String, String)>;
pub(super) type Provider = dyn Fn(HeadersRequest) -> BoxFuture<crate::Result<Headers>> + Send + Sync;
type OnMessage = dyn Fn(Direction, &str) + Send + Sync;
type OnDiagnostic = dyn Fn(&str) + Send + Sync;

/// HTTP transport to a remote server. [`crate::Client::http`] uses it, with the same options.
#[derive(Clone)]
#[must_use = "a transport does nothing until a client is connected over it"]
pub struct HttpTransport {
    url: String,
    /// Whether to use HTTP+SSE only.
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
    /// First invalid option of the builder, which connecting reports.
    invalid_option: Option<String>,
}

impl HttpTransport {
    /// Creates a transport to the server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        HttpTransport {
            url: url.into(),
            legacy: false,
            headers: HeaderMap::new(),
            provider: None,
            authorize: None,
            egress: Egress::default(),
            redirects: Redirects::any_origin(3),
            read_timeout: Duration::from_mins(5),
            max_reconnects: 20,
            on_message: None,
            on_diagnostic: None,
            invalid_option: None,
        }
    }

    /// Creates a transport that uses HTTP+SSE, the predecessor of Streamable HTTP. [`Self::new`] detects such
    /// servers automatically.
    pub fn sse(url: impl Into<String>) -> Self {
        HttpTransport { legacy: true, ..Self::new(url) }
    }

    /// Adds a header to every request. Its value is never shown.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        match validate_header(name.as_ref(), value.as_ref()) {
            Ok((name, value)) => {
                self.headers.insert(name, value);
            }
            Err(fault) => self.invalid_option = self.invalid_option.or(Some(fault)),
        }
        self
    }

    /// Sets a provider of headers, called before each request:
    /// `|request| async { Ok([("authorization", token().await?)]) }`. If the server rejects a request with 401, the
    /// provider is called once more with the challenge.
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

    /// Sets the authentication method: [`crate::auth::OAuth`], [`crate::auth::Bearer`] and others. Rejected requests
    /// are sent again after a successful authentication.
    pub fn auth(mut self, authorize: impl Authorize) -> Self {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Sets the egress, which opens connections under a policy and pools them. Default: a new one with safe defaults.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Connects through an HTTP proxy, `http://[user:password@]host:port`. This replaces [`Self::egress`], whose
    /// settings can name a proxy, too.
    pub fn proxy(mut self, url: &str) -> Self {
        match Egress::builder().proxy(url).build() {
            Ok(egress) => self.egress = egress,
            Err(error) => self.invalid_option = self.invalid_option.or(Some(error.to_string())),
        }
        self
    }

    /// Sets which HTTP redirects are followed. Default: up to three, to any URL that the egress allows. A request to
    /// another origin carries no credentials, but its arguments; [`Redirects::same_origin`] prevents that, too.
    pub fn redirects(mut self, redirects: Redirects) -> Self {
        self.redirects = redirects;
        self
    }

    /// Sets how long a stream may be idle before it counts as cut. Default: 5 min.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// Sets the maximum number of consecutive reconnects of a cut SSE stream without a new message. Default: 20.
    pub fn max_reconnects(mut self, max: usize) -> Self {
        self.max_reconnects = max;
        self
    }

    /// Sets a callback for all sent and received messages, as JSON text. The session id is redacted.
    pub fn on_message(mut self, callback: impl Fn(Direction, &str) + Send + Sync + 'static) -> Self {
        self.on_message = Some(Arc::new(callback));
        self
    }

    /// Sets a callback for diagnostic lines: response statuses, cut and resumed streams, new sessions. They contain
    /// no secrets.
    pub fn on_diagnostic(mut self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_diagnostic = Some(Arc::new(callback));
        self
    }

    fn target(&self) -> io::Result<Target> {
        if let Some(fault) = &self.invalid_option {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault.clone()));
        }
        Target::configured(&self.url)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    }

    async fn connect(&self, wire: Wire) -> io::Result<Box<dyn TransportHandle>> {
        let link = HttpConnection::open(self.clone(), self.target()?, wire);
        let handle = HttpHandle::new(link.clone());
        if self.legacy {
            link.find_endpoint().await.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(Box::new(handle))
    }
}

/// Validates an HTTP header that the application adds to requests.
pub(crate) fn validate_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(key) = HeaderName::try_from(name) else {
        return Err(format!("`{name}` is not a valid header name"));
    };
    if TRANSPORT_HEADERS.contains(&key) || key.as_str().starts_with(header_names::PARAM_PREFIX) {
        return Err(format!("the header `{key}` is set by the transport and cannot be overridden"));
    }
    let Ok(mut value) = HeaderValue::from_str(value) else {
        return Err(format!(
            "the value of the header `{key}` contains characters that are not allowed in a header"
        ));
    };
    value.set_sensitive(true);
    Ok((key, value))
}

impl Transport for HttpTransport {
    fn open(&self, wire: Wire) -> OpenFuture<'_> {
        Box::pin(self.connect(wire))
    }

    /// Returns the URL of the server for messages, without the parts that may be secret.
    fn name(&self) -> String {
        self.target().map_or_else(|_| "a remote server".to_owned(), |target| target.to_string())
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("server", &self.name()).finish_non_exhaustive()
    }
}
