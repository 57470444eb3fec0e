//! Sockets that must never get a connection.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, TcpListener};

/// Sockets on this machine that must not be reached.
pub(crate) struct Canary(Vec<TcpListener>);

impl Canary {
    /// Listens at each of the addresses that this machine has, on one port.
    pub(crate) fn open(addresses: &[&str]) -> Canary {
        let first = TcpListener::bind((addresses[0].parse::<IpAddr>().unwrap(), 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let others = addresses[1..]
            .iter()
            .filter_map(|address| TcpListener::bind((address.parse::<IpAddr>().unwrap(), port)).ok());
        let listeners: Vec<_> = std::iter::once(first).chain(others).collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        Canary(listeners)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0[0].local_addr().unwrap().port()
    }

    /// Returns the number of connections since the last call. A connection is counted before its client knows of it.
    pub(crate) fn connections(&self) -> usize {
        self.0.iter().map(|listener| std::iter::from_fn(|| listener.accept().ok()).count()).sum()
    }
}
