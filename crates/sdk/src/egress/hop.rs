//! What can be watched while a connection comes about.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::error::EgressError;

/// A step on the way to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The name is looked up.
    Resolve,
    /// An address is dialled.
    Connect,
    /// The proxy is asked to connect on.
    Proxy,
    /// TLS is agreed on.
    Tls,
}

/// A step that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Hop<'a> {
    /// Which step.
    pub phase: Phase,
    /// The host that the URL names.
    pub host: &'a str,
    /// What a name resolved to, or the address that was dialled.
    pub addresses: &'a [SocketAddr],
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did. Another address may still work.
    pub error: Option<&'a EgressError>,
}

/// Who is told of each step.
pub(super) type Watcher = Arc<dyn Fn(&Hop<'_>) + Send + Sync>;

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Resolve => "looking up the name",
            Phase::Connect => "connecting",
            Phase::Proxy => "asking the proxy",
            Phase::Tls => "agreeing on TLS",
        })
    }
}
