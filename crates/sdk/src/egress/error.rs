//! Why something on the network could not be reached. Texts name the host, never a query, a password or a header.

use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;

use super::address::Class;

/// Why a request got no response.
pub struct EgressError(Box<Inner>);

struct Inner {
    kind: EgressErrorKind,
    text: String,
    /// What the policy refuses.
    address: Option<IpAddr>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`EgressError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EgressErrorKind {
    /// Something that was set up does not work: a certificate, a proxy, a network.
    Setup,
    /// The URL cannot be used.
    Url,
    /// The name could not be resolved.
    Dns,
    /// The policy refuses the address, which is of this class.
    Refused(Class),
    /// Nobody answered at the address, or the connection was turned away.
    Connect,
    /// The proxy did not let the connection through.
    Proxy,
    /// No TLS connection came about.
    Tls,
    /// Connecting took too long.
    Timeout,
    /// The connection broke, or what came over it is not HTTP.
    Http,
    /// A redirect that is not followed.
    Redirect,
    /// The response is larger than allowed.
    TooLarge,
}

impl EgressError {
    pub(super) fn new(kind: EgressErrorKind, text: impl Into<String>) -> Self {
        EgressError(Box::new(Inner { kind, text: text.into(), address: None, source: None }))
    }

    pub(super) fn setup(text: impl Into<String>) -> Self {
        Self::new(EgressErrorKind::Setup, text)
    }

    pub(super) fn at(mut self, address: Option<IpAddr>) -> Self {
        self.0.address = address;
        self
    }

    pub(super) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// What kind it is.
    pub fn kind(&self) -> EgressErrorKind {
        self.0.kind
    }

    /// The address that the policy refuses, if it was known.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Whether the request, or a part of it, may have reached the server. If not, it can safely be sent again.
    pub fn may_have_been_sent(&self) -> bool {
        use EgressErrorKind::{Http, Redirect, TooLarge};
        matches!(self.0.kind, Http | Redirect | TooLarge)
    }
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressError").field("kind", &self.0.kind).field("text", &self.0.text).finish()
    }
}

impl StdError for EgressError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
