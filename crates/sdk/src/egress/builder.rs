//! Builder of an [`Egress`]: policy, resolver, timeouts and proxy.

use std::sync::Arc;
use std::time::Duration;

use super::connect_step::{ConnectObserver, ConnectStep};
use super::dial::Dialer;
use super::error::EgressError;
use super::policy::Policy;
use super::pool::{Egress, Limits};
use super::proxy::{HttpProxy, from_environment};
use super::resolver::{Resolver, SystemResolver};
use super::tls::TlsConnector;

/// Settings of an [`Egress`], each with a safe default. [`EgressBuilder::build`] creates it.
#[must_use = "the settings have no effect until `build` is called"]
pub struct EgressBuilder {
    policy: Policy,
    resolver: Arc<dyn Resolver>,
    pub(super) tls: TlsConnector,
    proxy: Option<HttpProxy>,
    connect_timeout: Duration,
    limits: Limits,
    on_connect_step: Option<ConnectObserver>,
    error: Option<EgressError>,
}

impl Default for EgressBuilder {
    fn default() -> Self {
        EgressBuilder {
            policy: Policy::default(),
            resolver: Arc::new(SystemResolver),
            tls: TlsConnector::default(),
            proxy: None,
            connect_timeout: Duration::from_secs(10),
            limits: Limits { idle_timeout: Duration::from_mins(1), idle_per_host: 8 },
            on_connect_step: None,
            error: None,
        }
    }
}

impl EgressBuilder {
    /// Sets the egress policy: which addresses may be connected to.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the resolver of host names. Default: that of the operating system.
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Sets the timeout for opening a connection, from name resolution to TLS. Default: 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an idle connection stays in the pool. Default: 60 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.idle_timeout = timeout;
        self
    }

    /// Sets the maximum number of idle connections per origin (scheme, host and port) in the pool. Default: 8.
    pub fn idle_per_host(mut self, count: usize) -> Self {
        self.limits.idle_per_host = count;
        self
    }

    /// Connects through an HTTP proxy, `http://[user:password@]host:port`, except to loopback addresses. `https` is
    /// tunnelled (`CONNECT`), plain `http` is forwarded.
    ///
    /// The proxy resolves the names, so the policy cannot check their addresses.
    pub fn proxy(mut self, url: &str) -> Self {
        match HttpProxy::new(url) {
            Ok(proxy) => self.proxy = Some(proxy),
            Err(error) => self.record_error(error),
        }
        self
    }

    /// Uses the proxy named by `HTTPS_PROXY` or `ALL_PROXY`, except for the hosts in `NO_PROXY`. Default: the
    /// environment is ignored.
    pub fn proxy_from_env(mut self) -> Self {
        #[expect(clippy::disallowed_methods, reason = "requested by the caller, and read once")]
        match from_environment(|name| std::env::var(name).ok()) {
            Ok(proxy) => self.proxy = proxy.or(self.proxy),
            Err(error) => self.record_error(error),
        }
        self
    }

    /// Sets a callback that is called after each step of opening a connection.
    pub fn on_connect_step(mut self, watch: impl Fn(&ConnectStep<'_>) + Send + Sync + 'static) -> Self {
        self.on_connect_step = Some(Arc::new(watch));
        self
    }

    /// Stores a configuration error for [`Self::build`]; the first one wins.
    pub(super) fn record_error(&mut self, error: EgressError) {
        self.error.get_or_insert(error);
    }

    /// Creates the HTTP client pool with these settings.
    ///
    /// # Errors
    ///
    /// Fails if a setting is invalid, such as a certificate or the proxy URL.
    pub fn build(mut self) -> Result<Egress, EgressError> {
        self.error.take().map_or_else(|| Ok(self.into_egress()), Err)
    }

    pub(super) fn into_egress(self) -> Egress {
        let EgressBuilder {
            policy,
            resolver,
            tls,
            proxy,
            connect_timeout,
            limits,
            on_connect_step,
            error: _,
        } = self;
        let proxy = proxy.map(Arc::new);
        Egress::with(Dialer { policy, resolver, tls, proxy, connect_timeout, on_connect_step }, limits)
    }
}
