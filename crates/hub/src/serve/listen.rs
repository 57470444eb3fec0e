//! Where the hub is reached: at an address of this machine, and perhaps through a proxy that does TLS for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linchpin::server::web::Listener;

use crate::cli::from_linchpin;
use crate::failure::Failure;

/// Where the hub listens when nothing is said.
pub(super) const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);

/// Listens at the address that was asked for, or at the usual one, or at any port if that one is taken.
pub(super) async fn listen(address: Option<SocketAddr>) -> Result<Listener, Failure> {
    let Some(address) = address else {
        match Listener::bind(USUAL).await {
            Ok(listener) => return Ok(listener),
            Err(error) => tracing::warn!(%error, "the usual port cannot be used, so another one is"),
        }
        let free = SocketAddr::new(USUAL.ip(), 0);
        return Listener::bind(free).await.map_err(|error| from_linchpin(error).into());
    };
    check(address)?;
    let cannot = |error| Failure::from(from_linchpin(error)).during(&address.to_string());
    Listener::bind(address).await.map_err(cannot)
}

/// Others may come only where nobody reads along.
pub(super) fn check(address: SocketAddr) -> Result<(), Failure> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let text = format!(
        "{address} can be reached by others, and without TLS what they send can be read on the way: the hub listens on \
         this machine alone, such as at {USUAL}; to let others in, put a proxy with TLS before it and write its address \
         into the operator's file, such as `url = \"https://hub.example\"`"
    );
    Err(Failure::usage(text))
}
