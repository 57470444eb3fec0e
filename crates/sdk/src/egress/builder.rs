//! The settings of an [`Egress`].

use std::sync::Arc;
use std::time::Duration;

use super::dial::Dialer;
use super::error::EgressError;
use super::hop::{Hop, Watcher};
use super::policy::Policy;
use super::pool::{Egress, Limits};
use super::proxy::{Proxy, from_environment};
use super::resolve::{Resolve, System};
use super::tls::Tls;

/// Settings; every one has a safe default. [`Builder::build`] makes an [`Egress`] of them.
#[must_use = "settings do nothing by themselves"]
pub struct Builder {
    policy: Policy,
    resolve: Arc<dyn Resolve>,
    pub(super) tls: Tls,
    proxy: Option<Proxy>,
    connect_timeout: Duration,
    limits: Limits,
    on_hop: Option<Watcher>,
    error: Option<EgressError>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            policy: Policy::default(),
            resolve: Arc::new(System),
            tls: Tls::default(),
            proxy: None,
            connect_timeout: Duration::from_secs(10),
            limits: Limits { idle_timeout: Duration::from_mins(1), idle_per_host: 8 },
            on_hop: None,
            error: None,
        }
    }
}

impl Builder {
    /// What may be reached.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Who looks names up, instead of the operating system.
    pub fn resolver(mut self, resolver: impl Resolve + 'static) -> Self {
        self.resolve = Arc::new(resolver);
        self
    }

    /// The longest that a connection may take to come about, from the lookup to TLS: 10 seconds unless told.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a connection is kept for the next request: a minute unless told.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.idle_timeout = timeout;
        self
    }

    /// How many connections to one host are kept for the next request: 8 unless told.
    pub fn idle_per_host(mut self, count: usize) -> Self {
        self.limits.idle_per_host = count;
        self
    }

    /// Connects through an HTTP proxy, `http://[user:password@]host:port`, except to this machine. `https` goes through
    /// it as it is (`CONNECT`), plain `http` is handed to it.
    ///
    /// Names are then looked up by the proxy: what their addresses are is for the proxy to judge.
    pub fn proxy(mut self, url: &str) -> Self {
        match Proxy::new(url) {
            Ok(proxy) => self.proxy = Some(proxy),
            Err(error) => self.note(error),
        }
        self
    }

    /// Connects through the proxy that `HTTPS_PROXY` or `ALL_PROXY` names, if one does, except to what `NO_PROXY` names.
    /// Without this the environment is not looked at.
    pub fn proxy_from_env(mut self) -> Self {
        #[expect(clippy::disallowed_methods, reason = "asked for by the caller, and read once")]
        match from_environment(|name| std::env::var(name).ok()) {
            Ok(proxy) => self.proxy = proxy.or(self.proxy),
            Err(error) => self.note(error),
        }
        self
    }

    /// Calls `watch` after each step on the way to a connection.
    pub fn on_hop(mut self, watch: impl Fn(&Hop<'_>) + Send + Sync + 'static) -> Self {
        self.on_hop = Some(Arc::new(watch));
        self
    }

    /// The first mistake counts.
    pub(super) fn note(&mut self, error: EgressError) {
        self.error.get_or_insert(error);
    }

    /// The way out, if everything that was set up works.
    pub fn build(mut self) -> Result<Egress, EgressError> {
        self.error.take().map_or_else(|| Ok(self.finish()), Err)
    }

    pub(super) fn finish(self) -> Egress {
        let Builder { policy, resolve, tls, proxy, connect_timeout, limits, on_hop, error: _ } = self;
        let proxy = proxy.map(Arc::new);
        Egress::with(Dialer { policy, resolve, tls, proxy, connect_timeout, on_hop }, limits)
    }
}
