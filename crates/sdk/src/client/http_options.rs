//! HTTP-only options of the client builder. Each one is described at the method of [`HttpTransport`] with the same name.

use std::time::Duration;

use super::ClientBuilder;
use crate::auth::Authorize;
use crate::egress::{Egress, Redirects};
use crate::transport::Direction;
use crate::transport::http::{HeadersRequest, HttpTransport};

/// Options of clients of remote servers.
impl ClientBuilder<HttpTransport> {
    fn with(mut self, change: impl FnOnce(HttpTransport) -> HttpTransport) -> Self {
        self.transport = change(self.transport);
        self
    }

    /// Adds a header to all HTTP requests; see [`HttpTransport::header`].
    pub fn header(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.with(|http| http.header(name, value))
    }

    /// Sets a provider of headers, called before each HTTP request; see [`HttpTransport::headers_with`].
    pub fn headers_with<F, Fut, H, K, V>(self, provider: F) -> Self
    where
        F: Fn(HeadersRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = crate::Result<H>> + Send + 'static,
        H: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        self.with(|http| http.headers_with(provider))
    }

    /// Authenticates HTTP requests to the server; see [`HttpTransport::auth`].
    pub fn auth(self, authorize: impl Authorize) -> Self {
        self.with(|http| http.auth(authorize))
    }

    /// Sets the egress policy and connection pool; see [`HttpTransport::egress`].
    pub fn egress(self, egress: Egress) -> Self {
        self.with(|http| http.egress(egress))
    }

    /// Connects through an HTTP proxy; see [`HttpTransport::proxy`].
    pub fn proxy(self, url: &str) -> Self {
        self.with(|http| http.proxy(url))
    }

    /// Sets which redirects are followed; see [`HttpTransport::redirects`].
    pub fn redirects(self, redirects: Redirects) -> Self {
        self.with(|http| http.redirects(redirects))
    }

    /// Sets how long a stream may be idle before it counts as cut; see [`HttpTransport::read_timeout`].
    pub fn read_timeout(self, timeout: Duration) -> Self {
        self.with(|http| http.read_timeout(timeout))
    }

    /// Sets the maximum number of consecutive reconnects of a cut stream; see [`HttpTransport::max_reconnects`].
    pub fn max_reconnects(self, max: usize) -> Self {
        self.with(|http| http.max_reconnects(max))
    }

    /// Sets a callback for all sent and received messages; see [`HttpTransport::on_message`].
    pub fn on_message(self, callback: impl Fn(Direction, &str) + Send + Sync + 'static) -> Self {
        self.with(|http| http.on_message(callback))
    }

    /// Sets a callback for diagnostic lines about the HTTP connection; see [`HttpTransport::on_diagnostic`].
    pub fn on_diagnostic(self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with(|http| http.on_diagnostic(callback))
    }
}
