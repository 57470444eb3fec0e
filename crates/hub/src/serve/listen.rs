//! Where the hub is reached: by this machine at an address of its own, and by others by TLS, or through proxies that do TLS for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linchpin::egress::Network;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::Hub;

use super::certificate::Certificate;
use super::descriptors::connections;
use crate::cli::from_linchpin;
use crate::config::Config;
use crate::failure::{Failure, Kind};

/// Where the hub listens when nothing is said.
pub(super) const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// Any port of this machine.
const FREE: SocketAddr = SocketAddr::new(USUAL.ip(), 0);

/// Listens for this machine: at the address that was asked for, or at the usual one, or at any port if that one is taken. Where
/// others come in by another address, it is beside that one, and what commands send stays on this machine.
pub(super) async fn listen(address: Option<SocketAddr>, door: Option<&Door>) -> Result<Listener, Failure> {
    let Some(address) = door.map(|_| FREE).or(address) else {
        match Listener::bind(USUAL).await {
            Ok(listener) => return Ok(listener.max_connections(connections(1))),
            Err(error) => tracing::warn!(%error, "the usual port cannot be used, so another one is"),
        }
        return bind(FREE, 1).await;
    };
    bind(address, 1 + usize::from(door.is_some())).await
}

/// Binds an address, as one of so many listeners.
async fn bind(address: SocketAddr, listeners: usize) -> Result<Listener, Failure> {
    let listener = Listener::bind(address).await.map_err(|error| Failure::from(from_linchpin(error)))?;
    Ok(listener.max_connections(connections(listeners)))
}

/// Where others come in.
pub(super) struct Door {
    address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
    proxies: Vec<Network>,
}

impl Door {
    /// What is said about it, if others may come. They may only where nobody reads along.
    pub(super) fn find(address: Option<SocketAddr>, config: &Config) -> Result<Option<Self>, Failure> {
        let is_safe = config.tls.is_some() || !config.proxies.is_empty();
        match address {
            Some(address) if is_safe => {
                let certificate = config.tls.clone().map(Certificate::open).transpose()?;
                Ok(Some(Door { address, certificate, proxies: config.proxies.clone() }))
            }
            None if is_safe => Err(Failure::usage(
                "the operator's file has `tls` or `proxies`, and does not say where others come in: write `listen` beside \
                 it, such as `listen = \"0.0.0.0:7420\"`",
            )),
            Some(address) if !address.ip().is_loopback() => Err(Failure::usage(format!(
                "{address} can be reached by others, and without TLS what they send can be read on the way: write a \
                 certificate into the operator's file (`tls`, with `certificate` and `key`), or the proxy with TLS that may \
                 connect (`proxies`, with `url`), or listen on this machine alone, such as at {USUAL}"
            ))),
            _ => Ok(None),
        }
    }

    /// Listens there, once there is somebody who can sign in.
    pub(super) async fn open(&self, hub: &Hub) -> Result<Listener, Failure> {
        if !self.address.ip().is_loopback() && !hub.has_password().await? {
            let text = format!(
                "{} can be reached by others, and nobody has a password yet: start the hub on this machine alone, with \
                 `--listen {FREE}`, and choose one with `linchpin user password local`",
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
