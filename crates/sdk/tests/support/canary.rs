//! Sockets that nobody may connect to.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, TcpListener};

/// Sockets on this machine that must not be reached.
pub(crate) struct Canary(Vec<TcpListener>);

impl Canary {
    /// Listens at each address that this machine has, at one port.
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

    /// How many connections were made since the last time. A connection is there before the one who made it knows.
    pub(crate) fn connections(&self) -> usize {
        self.0.iter().map(|listener| std::iter::from_fn(|| listener.accept().ok()).count()).sum()
    }
}
