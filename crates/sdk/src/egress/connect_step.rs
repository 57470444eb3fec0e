//! Observable steps of opening a connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::error::EgressError;

/// Step of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Name resolution.
    Resolve,
    /// TCP connection to an address.
    Connect,
    /// `CONNECT` request to the proxy.
    Proxy,
    /// TLS handshake.
    Tls,
}

/// A finished step.
#[derive(Debug)]
#[non_exhaustive]
pub struct Hop<'a> {
    /// The step.
    pub phase: Phase,
    /// The host in the URL.
    pub host: &'a str,
    /// The resolved addresses, or the dialled one.
    pub addresses: &'a [SocketAddr],
    /// Duration of the step.
    pub took: Duration,
    /// The error, if the step failed. Another address may still succeed.
    pub error: Option<&'a EgressError>,
}

/// Callback for finished steps.
pub(super) type Watcher = Arc<dyn Fn(&Hop<'_>) + Send + Sync>;

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Resolve => "name resolution",
            Phase::Connect => "connecting",
            Phase::Proxy => "the proxy handshake",
            Phase::Tls => "the TLS handshake",
        })
    }
}
