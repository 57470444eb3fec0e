//! Listeners of the hub: the local listener of this machine, and the public listener with TLS or behind TLS proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linchpin::egress::Network;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::Hub;

use super::certificate::Certificate;
use super::file_limit::connections;
use crate::cli::from_linchpin;
use crate::config::Config;
use crate::error::{Failure, Kind};

/// Default listen address.
pub(super) const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// Any free port of this machine.
const FREE: SocketAddr = SocketAddr::new(USUAL.ip(), 0);

/// Binds the local listener: to the given address, or to the default one, or to any free port if that one is taken.
/// With a public listener it is bound to a free loopback port, so that requests of commands stay on this machine.
pub(super) async fn listen(address: Option<SocketAddr>, door: Option<&Door>) -> Result<Listener, Failure> {
    let Some(address) = door.map(|_| FREE).or(address) else {
        match Listener::bind(USUAL).await {
            Ok(listener) => return Ok(listener.max_connections(connections(1))),
            Err(error) => tracing::warn!(%error, "default port unavailable; using a free port"),
        }
        return bind(FREE, 1).await;
    };
    bind(address, 1 + usize::from(door.is_some())).await
}

/// Binds an address. `listeners` is the total number of listeners, which share the connection limit.
async fn bind(address: SocketAddr, listeners: usize) -> Result<Listener, Failure> {
    let listener = Listener::bind(address).await.map_err(|error| Failure::from(from_linchpin(error)))?;
    Ok(listener.max_connections(connections(listeners)))
}

/// Public listener.
pub(super) struct Door {
    address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
    proxies: Vec<Network>,
}

impl Door {
    /// Returns the public listener, if one is configured. It requires TLS or TLS proxies.
    pub(super) fn find(address: Option<SocketAddr>, config: &Config) -> Result<Option<Self>, Failure> {
        let is_safe = config.tls.is_some() || !config.proxies.is_empty();
        match address {
            Some(address) if is_safe => {
                let certificate = config.tls.clone().map(Certificate::open).transpose()?;
                Ok(Some(Door { address, certificate, proxies: config.proxies.clone() }))
            }
            None if is_safe => Err(Failure::usage(
                "the configuration file sets `tls` or `proxies` without a listen address: add `listen`, such as \
                 `listen = \"0.0.0.0:7420\"`",
            )),
            Some(address) if !address.ip().is_loopback() => Err(Failure::usage(format!(
                "{address} is reachable from the network, and without TLS the traffic can be read by others: set `tls` \
                 (with `certificate` and `key`) in the configuration file, or `proxies` and `url` for a TLS proxy, or \
                 listen on this machine only, such as at {USUAL}"
            ))),
            _ => Ok(None),
        }
    }

    /// Binds the listener. An address reachable from the network requires a user with a password.
    pub(super) async fn open(&self, hub: &Hub) -> Result<Listener, Failure> {
        if !self.address.ip().is_loopback() && !hub.has_password().await? {
            let text = format!(
                "{} is reachable from the network, but no user has a password yet: start the hub on this machine only, \
                 with `--listen {FREE}`, and set a password with `linchpin user password local`",
                self.address
            );
            return Err(Failure::new(Kind::Other, text));
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
