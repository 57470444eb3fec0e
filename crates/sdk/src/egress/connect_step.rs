//! Steps of opening an outgoing connection, reported to observers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::error::EgressError;

/// Step of opening a connection: name resolution, TCP connection, `CONNECT` request to a proxy, or TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectPhase {
    /// Name resolution.
    Resolve,
    /// Phase: TCP connection to an address.
    Connect,
    /// Phase: `CONNECT` request to the proxy.
    Proxy,
    /// Phase: TLS handshake.
    Tls,
}

/// Finished step of opening an outgoing connection, for observers.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConnectStep<'a> {
    /// Phase of connecting that the step belongs to.
    pub phase: ConnectPhase,
    /// Host that the connection is opened to.
    pub host: &'a str,
    /// Resolved addresses after name resolution; afterwards, the address that is dialled.
    pub addresses: &'a [SocketAddr],
    /// Duration of the step.
    pub duration: Duration,
    /// Error of the step, if it failed. Another address may still succeed.
    pub error: Option<&'a EgressError>,
}

/// Callback for the finished steps of opening outgoing connections.
pub(super) type ConnectObserver = Arc<dyn Fn(&ConnectStep<'_>) + Send + Sync>;

impl fmt::Display for ConnectPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectPhase::Resolve => "name resolution",
            ConnectPhase::Connect => "connecting",
            ConnectPhase::Proxy => "the proxy handshake",
            ConnectPhase::Tls => "the TLS handshake",
        })
    }
}
