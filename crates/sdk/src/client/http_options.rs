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

    /// See [`HttpTransport::header`].
    pub fn header(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.with(|http| http.header(name, value))
    }

    /// See [`HttpTransport::headers_with`].
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

    /// See [`HttpTransport::auth`].
    pub fn auth(self, authorize: impl Authorize) -> Self {
        self.with(|http| http.auth(authorize))
    }

    /// See [`HttpTransport::egress`].
    pub fn egress(self, egress: Egress) -> Self {
        self.with(|http| http.egress(egress))
    }

    /// See [`HttpTransport::proxy`].
    pub fn proxy(self, url: &str) -> Self {
        self.with(|http| http.proxy(url))
    }

    /// See [`HttpTransport::redirects`].
    pub fn redirects(self, redirects: Redirects) -> Self {
        self.with(|http| http.redirects(redirects))
    }

    /// See [`HttpTransport::read_timeout`].
    pub fn read_timeout(self, timeout: Duration) -> Self {
        self.with(|http| http.read_timeout(timeout))
    }

    /// See [`HttpTransport::max_reconnects`].
    pub fn max_reconnects(self, max: usize) -> Self {
        self.with(|http| http.max_reconnects(max))
    }

    /// See [`HttpTransport::on_message`].
    pub fn on_message(self, callback: impl Fn(Direction, &str) + Send + Sync + 'static) -> Self {
        self.with(|http| http.on_message(callback))
    }

    /// See [`HttpTransport::on_diagnostic`].
    pub fn on_diagnostic(self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with(|http| http.on_diagnostic(callback))
    }
}
