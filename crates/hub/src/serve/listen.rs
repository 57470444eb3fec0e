//! Listeners of the hub: the local listener of this machine, and the public listener with TLS or behind TLS proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linchpin::egress::Network;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::Hub;

use super::certificate::Certificate;
use super::file_limit::max_connections;
use crate::cli::to_anyhow;
use crate::config::Config;
use crate::error::{CliError, CliErrorKind};

/// Address on which the hub listens by default.
pub(super) const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// Address of this machine with port 0, which selects any free port.
const ANY_PORT: SocketAddr = SocketAddr::new(DEFAULT_ADDRESS.ip(), 0);

/// Binds the local listener: to the given address, or to the default one, or to any free port if that one is taken.
/// With a public listener it is bound to a free loopback port, so that requests of commands stay on this machine.
pub(super) async fn bind_local(
    address: Option<SocketAddr>,
    public: Option<&PublicListener>,
) -> Result<Listener, CliError> {
    let Some(address) = public.map(|_| ANY_PORT).or(address) else {
        match Listener::bind(DEFAULT_ADDRESS).await {
            Ok(listener) => return Ok(listener.max_connections(max_connections(1))),
            Err(error) => tracing::warn!(%error, "default port unavailable; using a free port"),
        }
        return bind(ANY_PORT, 1).await;
    };
    bind(address, 1 + usize::from(public.is_some())).await
}

/// Binds a listener of the hub to an address. `listeners` is the total number of listeners, which share the connection
/// limit.
async fn bind(address: SocketAddr, listeners: usize) -> Result<Listener, CliError> {
    let listener = Listener::bind(address).await.map_err(|error| CliError::from(to_anyhow(error)))?;
    Ok(listener.max_connections(max_connections(listeners)))
}

/// Settings of the listener for clients on other machines.
pub(super) struct PublicListener {
    address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
    proxies: Vec<Network>,
}

impl PublicListener {
    /// Returns the settings of the public listener, if one is configured. It requires TLS or TLS proxies.
    pub(super) fn from_config(
        address: Option<SocketAddr>,
        config: &Config,
    ) -> Result<Option<Self>, CliError> {
        let is_safe = config.tls.is_some() || !config.proxies.is_empty();
        match address {
            Some(address) if is_safe => {
                let certificate = config.tls.clone().map(Certificate::open).transpose()?;
                Ok(Some(PublicListener { address, certificate, proxies: config.proxies.clone() }))
            }
            None if is_safe => Err(CliError::usage(
                "the configuration file sets `tls` or `proxies` without a listen address: add `listen`, such as \
                 `listen = \"0.0.0.0:7420\"`",
            )),
            Some(address) if !address.ip().is_loopback() => Err(CliError::usage(format!(
                "{address} is reachable from the network, and without TLS the traffic can be read by others: set `tls` \
                 (with `certificate` and `key`) in the configuration file, or `proxies` and `url` for a TLS proxy, or \
                 listen on this machine only, such as at {DEFAULT_ADDRESS}"
            ))),
            _ => Ok(None),
        }
    }

    /// Binds the public listener. An address reachable from the network requires a user with a password.
    pub(super) async fn open_listener(&self, hub: &Hub) -> Result<Listener, CliError> {
        if !self.address.ip().is_loopback() && !hub.identity().has_password().await? {
            let text = format!(
                "{} is reachable from the network, but no user has a password yet: start the hub on this machine only, \
                 with `--listen {ANY_PORT}`, and set a password with `linchpin user password local`",
                self.address
            );
            return Err(CliError::new(CliErrorKind::Other, text));
        }
        let mut listener = bind(self.address, 2).await?;
        if let Some(certificate) = &self.certificate {
            listener = listener.tls(&certificate.tls);
        }
        if self.proxies.is_empty() {
            return Ok(listener);
        }
        let proxies = self.proxies.clone();
        Ok(listener.only_from(move |address| proxies.iter().any(|proxy| proxy.contains(address))))
    }
}
